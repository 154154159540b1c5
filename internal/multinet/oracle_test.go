// SPDX-License-Identifier: Apache-2.0

package multinet

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"

	"github.com/containernetworking/cni/pkg/types/create"
	nad "github.com/k8snetworkplumbingwg/network-attachment-definition-client/pkg/apis/k8s.cni.cncf.io/v1"
	"github.com/k8snetworkplumbingwg/network-attachment-definition-client/pkg/utils"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"pgregory.net/rapid"

	"github.com/weft-net/weft/internal/cni"
)

// network is the result of one network of a pod, as Multus and weft both get it: the text that a plugin has printed.
type network struct {
	Name    string
	Version string
	Printed string
	Device  *nad.DeviceInfo
}

// anyNetwork makes up what a plugin could print: interfaces on both sides, addresses of the one or the other or of
// none, routes with and without a gateway.
func anyNetwork() *rapid.Generator[network] {
	return rapid.Custom(func(t *rapid.T) network {
		version := rapid.SampledFrom([]string{"0.2.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"}).Draw(t, "version")
		n := network{Name: rapid.SampledFrom([]string{"cbr0", "default/macvlan-conf", "a/b<c>&d"}).Draw(t, "name")}
		n.Version = version
		if version == "0.2.0" {
			n.Printed = fmt.Sprintf(`{"cniVersion":"0.2.0","ip4":{"ip":%q%s,"routes":[{"dst":"0.0.0.0/0"%s}]},"dns":{}}`,
				rapid.SampledFrom([]string{"10.1.0.5/24", "10.2.0.6/32"}).Draw(t, "ip4"),
				rapid.SampledFrom([]string{"", `,"gateway":"10.1.0.1"`}).Draw(t, "gateway4"),
				rapid.SampledFrom([]string{"", `,"gw":"10.1.0.1"`}).Draw(t, "gw4"))
			return n
		}
		o := map[string]any{"cniVersion": version}
		links := rapid.IntRange(0, 4).Draw(t, "interfaces")
		some(o, "interfaces", rapid.SliceOfN(anyInterface(), links, links).Draw(t, "links"))
		some(o, "ips", rapid.SliceOfN(anyIP(version, links), 0, 4).Draw(t, "ips"))
		some(o, "routes", rapid.SliceOfN(anyRoute(), 0, 4).Draw(t, "routes"))
		if rapid.Bool().Draw(t, "dns") {
			o["dns"] = map[string]any{
				"nameservers": rapid.SliceOfN(rapid.SampledFrom([]string{"10.0.0.10", "fd00::10"}), 0, 2).Draw(t, "nameservers"),
				"domain":      rapid.SampledFrom([]string{"", "d.example"}).Draw(t, "domain"),
				"search":      rapid.SliceOfN(rapid.Just("s.example"), 0, 2).Draw(t, "search"),
				"options":     rapid.SliceOfN(rapid.SampledFrom([]string{"ndots:5", "<&>"}), 0, 2).Draw(t, "options"),
			}
		}
		b, err := json.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		n.Printed = string(b)
		n.Device = rapid.SampledFrom(devices()).Draw(t, "device")
		return n
	})
}

// some leaves out what is empty: a plugin prints no empty lists.
func some(o map[string]any, key string, list []map[string]any) {
	if len(list) > 0 {
		o[key] = list
	}
}

func anyInterface() *rapid.Generator[map[string]any] {
	return rapid.Custom(func(t *rapid.T) map[string]any {
		o := map[string]any{"name": rapid.SampledFrom([]string{"eth0", "net1", "veth12"}).Draw(t, "name")}
		if rapid.Bool().Draw(t, "mac") {
			o["mac"] = "02:00:00:00:00:0a"
		}
		if mtu := rapid.SampledFrom([]int{0, 1450}).Draw(t, "mtu"); mtu > 0 {
			o["mtu"] = mtu
		}
		if rapid.Bool().Draw(t, "inside") {
			o["sandbox"] = "/run/netns/p"
		}
		return o
	})
}

func anyIP(version string, links int) *rapid.Generator[map[string]any] {
	return rapid.Custom(func(t *rapid.T) map[string]any {
		four := rapid.Bool().Draw(t, "four")
		o := map[string]any{"address": "fd00::5/64"}
		gateway := "fd00::1"
		if four {
			o["address"], gateway = rapid.SampledFrom([]string{"10.1.0.5/24", "10.1.0.0/31", "0.0.0.0/0"}).Draw(t, "address"),
				"10.1.0.1"
		}
		if version[0] == '0' {
			o["version"] = map[bool]string{true: "4", false: "6"}[four]
		}
		if rapid.Bool().Draw(t, "gateway") {
			o["gateway"] = gateway
		}
		if links > 0 && rapid.Bool().Draw(t, "its interface") {
			o["interface"] = rapid.IntRange(0, links-1).Draw(t, "interface")
		}
		return o
	})
}

func anyRoute() *rapid.Generator[map[string]any] {
	return rapid.Custom(func(t *rapid.T) map[string]any {
		dst := rapid.SampledFrom([]string{"0.0.0.0/0", "::/0", "0.0.0.0/1", "10.0.0.0/8", "fd01::/48"}).Draw(t, "dst")
		o := map[string]any{"dst": dst}
		if rapid.Bool().Draw(t, "gw") {
			o["gw"] = map[bool]string{true: "10.1.0.1", false: "fd00::1"}[netip.MustParsePrefix(dst).Addr().Is4()]
		}
		return o
	})
}

func devices() []*nad.DeviceInfo {
	return []*nad.DeviceInfo{
		nil,
		{
			Type: "pci", Version: "1.1.0", Pci: &nad.PciDevice{
				PciAddress: "0000:03:02.3", Vhostnet: "/dev/vhost", RdmaDevice: "mlx5_3", PfPciAddress: "0000:03:00.0",
				RepresentorDevice: "eth3",
			},
		},
		{
			Type: "vdpa", Version: "1.1.0", Vdpa: &nad.VdpaDevice{
				ParentDevice: "vdpa0", Driver: "vhost", Path: "/dev/v", PciAddress: "0000:03:02.4", PfPciAddress: "0000:03:00.0",
				RepresentorDevice: "eth4",
			},
		},
		{Type: "vhost-user", Version: "1.1.0", VhostUser: &nad.VhostDevice{Mode: "client", Path: "/run/s"}},
		{Type: "memif", Version: "1.1.0", Memif: &nad.MemifDevice{Role: "master", Path: "/run/m", Mode: "ethernet"}},
	}
}

// recorder is an API server that keeps one pod.
type recorder struct{ pod corev1.Pod }

func (k *recorder) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodPut {
		k.pod = corev1.Pod{}
		if err := json.NewDecoder(r.Body).Decode(&k.pod); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
	}
	k.pod.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(k.pod) // the client complains
}

// multus writes the annotation with the library that Multus does it with.
func (k *recorder) multus(t *rapid.T, client kubernetes.Interface, all []network) string {
	var statuses []nad.NetworkStatus
	for i, n := range all {
		printed, err := create.CreateFromBytes([]byte(n.Printed))
		if err != nil {
			t.Fatal(err)
		}
		list, err := utils.CreateNetworkStatuses(printed, n.Name, i == 0, n.Device)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range list {
			statuses = append(statuses, *s)
		}
	}
	k.pod = corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "p"}}
	if err := utils.SetNetworkStatus(client, &k.pod, statuses); err != nil {
		t.Fatal(err)
	}
	return k.pod.Annotations[StatusKey]
}

// TestStatusIsMultus compares the annotation with that of Multus, byte for byte, whatever the results of the networks
// are.
func TestStatusIsMultus(t *testing.T) {
	k := &recorder{}
	server := httptest.NewServer(k)
	defer server.Close()
	client, err := kubernetes.NewForConfig(&rest.Config{
		Host: server.URL, QPS: -1, ContentConfig: rest.ContentConfig{ContentType: "application/json"},
	})
	if err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, func(t *rapid.T) {
		all := rapid.SliceOfN(anyNetwork(), 1, 3).Draw(t, "networks")
		got := make([]Got, 0, len(all))
		for i, n := range all {
			r, err := cni.ParseResult([]byte(n.Printed))
			if err != nil {
				t.Fatal(err)
			}
			g := Got{Label: n.Name, Primary: i == 0, Result: r, Version: n.Version}
			if n.Device != nil {
				b, err := json.Marshal(n.Device)
				if err != nil {
					t.Fatal(err)
				}
				g.Device = &DeviceInfo{}
				if err := json.Unmarshal(b, g.Device); err != nil {
					t.Fatal(err)
				}
			}
			got = append(got, g)
		}
		text, err := Status(got)
		if err != nil {
			t.Fatal(err)
		}
		if want := k.multus(t, client, all); text != want {
			t.Errorf("weft writes\n%s\nMultus writes\n%s", text, want)
		}
	})
}
