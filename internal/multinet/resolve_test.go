// SPDX-License-Identifier: Apache-2.0

package multinet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/cni"
	"github.com/weft-net/weft/internal/model"
)

// book is the datastore of a test.
type book struct {
	pods     map[string]model.Pod
	networks map[string]model.NetworkAttachment
	down     bool
	asked    int
	devices  map[string][]string // nil: VFs
}

func (b *book) Pod(_ context.Context, ref model.PodRef) (model.Pod, error) {
	b.asked++
	p, ok := b.pods[ref.String()]
	if b.down {
		return p, errors.New("the API server does not answer")
	}
	if !ok {
		return p, fmt.Errorf("pod %s: %w", ref, store.ErrNotFound)
	}
	return p, nil
}

func (b *book) Network(_ context.Context, namespace, name string) (model.NetworkAttachment, error) {
	n, ok := b.networks[namespace+"/"+name]
	if !ok {
		return n, fmt.Errorf("network %s/%s: %w", namespace, name, store.ErrNotFound)
	}
	return n, nil
}

func (b *book) Of(context.Context, model.PodRef) (map[string][]string, error) {
	if b.devices != nil {
		return b.devices, nil
	}
	return map[string][]string{"example.com/vf": {"0000:01:00.1", "0000:01:00.2"}}, nil
}

// world is a cluster with networks and one pod, app/web.
func world(annotations map[string]string) *book {
	b := &book{pods: map[string]model.Pod{}, networks: map[string]model.NetworkAttachment{}}
	b.pods["app/web"] = model.Pod{Namespace: "app", Name: "web", UID: "u1", Annotations: annotations}
	add := func(namespace, name, config string) {
		b.networks[namespace+"/"+name] = model.NetworkAttachment{Namespace: namespace, Name: name, Config: config}
	}
	add("app", "plain", `{"type":"macvlan","master":"eth1"}`)
	add("app", "rich",
		`{"name":"real","cniVersion":"0.4.0","plugins":[{"type":"macvlan","capabilities":{"ips":true,"mac":true}},
	  {"type":"portmap","capabilities":{"portMappings":true}},{"type":"bandwidth","capabilities":{"bandwidth":true}}]}`)
	add("other", "far", `{"type":"ipvlan"}`)
	add("default", "common", `{"type":"ipvlan"}`)
	add("kube-system", "first", `{"type":"bridge"}`)
	add("app", "loop", `{"type":"multus"}`)
	add("app", "file", "")
	add("app", "nofile", " ")
	add("app", "broken", "{\n \"type\": }")
	vf := model.NetworkAttachment{
		Namespace: "app", Name: "vf", Config: `{"type":"sriov"}`,
		Annotations: map[string]string{ResourceKey: "example.com/vf"},
	}
	b.networks[vf.String()] = vf
	return b
}

func callOf(t *testing.T, conf string) cni.Call {
	t.Helper()
	env := map[string]string{
		"CNI_COMMAND": "ADD", "CNI_CONTAINERID": "c1", "CNI_NETNS": "/ns", "CNI_IFNAME": "eth0", "CNI_PATH": "/bin",
		"CNI_ARGS": "IgnoreUnknown=1;K8S_POD_NAMESPACE=app;K8S_POD_NAME=web;K8S_POD_UID=u1;IP=10.9.9.9",
	}
	call, err := cni.ParseCall(func(k string) string { return env[k] }, []byte(conf))
	if err != nil {
		t.Fatal(err)
	}
	return call
}

// lines describes a plan: label, network, interface, the plugins with what they get.
func lines(t *testing.T, p Plan) []string {
	t.Helper()
	var out []string
	for _, a := range p.Attachments {
		line := a.Label + " " + a.Network.Name + " " + a.Network.CNIVersion + " " + a.Request.IfName
		for _, arg := range a.Request.Args {
			if !strings.HasPrefix(arg[0], "K8S") && arg[0] != "IgnoreUnknown" {
				line += " " + arg[0] + "=" + arg[1]
			}
		}
		for _, p := range a.Network.Plugins {
			var keys map[string]json.RawMessage
			if err := json.Unmarshal(p.Raw, &keys); err != nil {
				t.Fatal(err)
			}
			line += " " + p.Type
			for _, k := range []string{"runtimeConfig", "args", "deviceID", "drop", "via", "yield"} {
				if v := keys[k]; v != nil && p.Type != "first" {
					line += " " + k + string(v)
				}
			}
		}
		out = append(out, line)
	}
	return out
}

const delegates = `{"cniVersion":"1.0.0","name":"outer","type":"multus","delegates":[{"name":"pods","type":"ptp"}]%s}`

func TestResolve(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "10-file.conf"), `{"name":"file","type":"vlan"}`)
	write(t, filepath.Join(dir, "net", "20-cluster.conflist"),
		`{"name":"cluster","cniVersion":"0.3.1","plugins":[{"type":"bridge"}]}`)
	write(t, filepath.Join(dir, "net", "cluster", "a.conf"), `{"type":"tuning"}`)
	write(t, filepath.Join(dir, "net", "aux", "b.conf"), `{"type":"sbr"}`)
	const pods = "pods pods 1.0.0 eth0 IP=10.9.9.9 ptp"
	for _, tc := range []struct {
		name, conf  string
		annotations map[string]string
		want        []string
	}{
		{"nothing", "", nil, []string{pods}},
		{
			"plain", "",
			map[string]string{NetworksKey: "plain, default/common@lan"},
			[]string{pods, "app/plain plain 1.0.0 net1 macvlan", "default/common common 1.0.0 lan ipvlan"},
		},
		{
			"twice", "",
			map[string]string{NetworksKey: "plain,plain"},
			[]string{pods, "app/plain plain 1.0.0 net1 macvlan", "app/plain plain 1.0.0 net2 macvlan"},
		},
		{
			"capabilities", "",
			map[string]string{
				NetworksKey: `[{"name":"rich","ips":["10.1.2.3/24"],"mac":"02:00:00:00:00:01","portMappings":[{"hostPort":1}],"bandwidth":{"ingressRate":5},"cni-args":{"k":1},"ipam-claim-reference":""}]`,
			},
			[]string{
				pods,
				`app/rich real 0.4.0 net1 IP=10.1.2.3/24 MAC=02:00:00:00:00:01 macvlan runtimeConfig{"ips":["10.1.2.3/24"],"mac":"02:00:00:00:00:01"} args{"cni":{"k":1}}` +
					` portmap runtimeConfig{"portMappings":[{"hostPort":1}]} args{"cni":{"k":1}} bandwidth runtimeConfig{"bandwidth":{"ingressRate":5}} args{"cni":{"k":1}}`,
			},
		},
		{
			"a MAC without the capability", "",
			map[string]string{NetworksKey: `[{"name":"plain","mac":"02:00:00:00:00:01"}]`},
			[]string{pods, "app/plain plain 1.0.0 net1 MAC=02:00:00:00:00:01 macvlan"},
		},
		{
			"claim", "",
			map[string]string{NetworksKey: `[{"name":"plain","ipam-claim-reference":"c"}]`},
			[]string{pods, `app/plain plain 1.0.0 net1 macvlan args{"cni":{"ipam-claim-reference":"c"}}`},
		},
		{
			"other first", "",
			map[string]string{DefaultKey: "first"},
			[]string{"kube-system/first first 1.0.0 eth0 IP=10.9.9.9 bridge"},
		},
		{
			"file", `,"confDir":"` + dir + `"`,
			map[string]string{NetworksKey: "file"},
			[]string{pods, "app/file file 1.0.0 net1 vlan"},
		},
		{
			"default networks", `,"defaultNetworks":["first"]`,
			map[string]string{NetworksKey: "plain"},
			[]string{pods, "kube-system/first first 1.0.0 net1 bridge", "app/plain plain 1.0.0 net2 macvlan"},
		},
		{"system namespace", `,"defaultNetworks":["first"],"systemNamespaces":["app"]`, nil, []string{pods}},
		{
			"devices", "",
			map[string]string{NetworksKey: "vf,vf"},
			[]string{
				pods, `app/vf vf 1.0.0 net1 sriov deviceID"0000:01:00.1" weft-default-route yieldtrue`,
				`app/vf vf 1.0.0 net2 sriov deviceID"0000:01:00.2" weft-default-route yieldtrue`,
			},
		},
		{
			"default route", "", map[string]string{
				NetworksKey: `[{"name":"plain","default-route":["10.1.2.1"]},{"name":"default/common"}]`,
			}, nil,
		},
		{
			"route", "",
			map[string]string{NetworksKey: `[{"name":"plain","default-route":["10.1.2.1"]}]`},
			[]string{
				pods + ` weft-default-route drop["4"]`,
				`app/plain plain 1.0.0 net1 macvlan weft-default-route drop["4"] via["10.1.2.1"]`,
			},
		},
		{
			"empty route", "",
			map[string]string{NetworksKey: `[{"name":"plain","default-route":[]}]`},
			[]string{pods + ` weft-default-route drop["4","6"]`, `app/plain plain 1.0.0 net1 macvlan`},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := world(tc.annotations)
			got, err := (&Resolver{Cluster: b, Devices: b}).Resolve(t.Context(), callOf(t, fmt.Sprintf(delegates, tc.conf)))
			if tc.want == nil {
				if err == nil {
					t.Error("no error")
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(tc.want, lines(t, got)); d != "" {
				t.Error(d)
			}
		})
	}
	t.Run("cluster network beside delegates", func(t *testing.T) {
		conf := fmt.Sprintf(delegates, `,"clusterNetwork":"`+dir+`/10-file.conf"`)
		got, err := (&Resolver{Cluster: world(nil)}).Resolve(t.Context(), callOf(t, conf))
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff([]string{"file file 1.0.0 eth0 IP=10.9.9.9 vlan"}, lines(t, got)); d != "" {
			t.Error(d)
		}
	})
	t.Run("cluster network", func(t *testing.T) {
		conf :=
			`{"cniVersion":"0.3.1","name":"multus-cni-network","type":"multus-shim","logToStderr":true,"clusterNetwork":"` +
				dir +
				`/net/20-cluster.conflist","auxiliaryCNIChainName":"aux"}`
		got, err := (&Resolver{Cluster: world(nil)}).Resolve(t.Context(), callOf(t, conf))
		if err != nil {
			t.Fatal(err)
		}
		want := []string{"cluster cluster 0.3.1 eth0 IP=10.9.9.9 bridge tuning", "aux aux 0.3.1 net1 sbr"}
		if d := cmp.Diff(want, lines(t, got)); d != "" {
			t.Error(d)
		}
	})
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// What a runtime reports of a pod is not asked for.
func TestAnnotationsOfTheRuntime(t *testing.T) {
	b := world(nil)
	conf := fmt.Sprintf(delegates,
		`,"runtimeConfig":{"io.kubernetes.cri.pod-annotations":{"k8s.v1.cni.cncf.io/networks":"plain"}}`)
	got, err := (&Resolver{Cluster: b}).Resolve(t.Context(), callOf(t, conf))
	if err != nil || len(got.Attachments) != 2 || b.asked != 0 {
		t.Errorf("%d networks, %d questions, %v", len(got.Attachments), b.asked, err)
	}
	o := got.Attachments[1].Request.Origin
	if o == nil || o.Network != "app/plain" || string(o.Selection) != `{"name":"plain","namespace":"app"}` || o.Primary ||
		o.Pod.UID != "u1" {
		t.Errorf("origin %+v", o)
	}
}

func TestBadNetworks(t *testing.T) {
	const element = "annotation k8s.v1.cni.cncf.io/networks: element 1: "
	for _, tc := range []struct{ conf, networks, want string }{
		{
			"", "nonsuch",
			element +
				"network app/nonsuch: there is no NetworkAttachmentDefinition nonsuch in namespace app (create one with `kubectl apply`, or correct the name)",
		},
		{
			`,"namespaceIsolation":true`, "other/far", element +
				"network other/far: the node keeps namespaces apart (namespaceIsolation), and the pod is in namespace app (use a network of the pod's own namespace, or name the other one in globalNamespaces)",
		},
		{
			"", "plain@eth0",
			`network app/plain: interface eth0: the name is taken by the first network (set another CNI_IFNAME for the first network)`,
		},
		{
			"", "plain,plain@net1",
			`interface net1: both network app/plain and network app/plain are to have it (give each its own)`,
		},
		{"", "loop", `network app/loop: plugin "weft-cni" is among its own delegates (put its delegates here instead)`},
		{
			"", "broken",
			`network app/broken: its configuration: line 2 column 10: invalid character '}' looking for beginning of value`,
		},
		{
			`,"confDir":"/nonsuch"`, "nofile",
			element +
				`network app/nofile has no spec.config: directory /nonsuch: no such file or directory (write it there, or put it into the object's spec.config)`,
		},
		{
			"", `[{"name":"plain","ips":["10.1.2.3"]}]`,
			`network app/plain: ips: no plugin of network plain declares the capability ips (add "capabilities": {"ips": true} to the plugin that serves it)`,
		},
		{
			"", `[{"name":"common","namespace":"default","mac":"02:00:00:00:00:01"}]`,
			`network default/common: mac: no plugin of network common declares the capability mac (add "capabilities": {"mac": true} to the plugin that serves it)`,
		},
		{
			"", `[{"name":"plain","bandwidth":{"ingressRate":1}}]`,
			`network app/plain: bandwidth: no plugin of network plain declares the capability bandwidth (add "capabilities": {"bandwidth": true} to the plugin that serves it)`,
		},
		{
			`,"defaultNetworks":["nonsuch"],"confDir":"/nonsuch"`, "",
			`network outer: defaultNetworks "nonsuch": directory /nonsuch: no such file or directory (write it there, or put it into the object's spec.config)`,
		},
		{
			`,"auxiliaryCNIChainName":"aux"`, "",
			`network outer: auxiliaryCNIChainName "aux" needs a clusterNetwork that is a path, which "" is not (name clusterNetwork by its path)`,
		},
	} {
		b := world(map[string]string{NetworksKey: tc.networks})
		_, err := (&Resolver{Cluster: b}).Resolve(t.Context(), callOf(t, fmt.Sprintf(delegates, tc.conf)))
		if err == nil {
			t.Errorf("%s: no error", tc.networks)
			continue
		}
		if d := cmp.Diff(tc.want, err.Error()); d != "" {
			t.Errorf("%s %s:\n%s", tc.conf, tc.networks, d)
		}
	}
}

// The device information is where the plugin reads it, and in the network status.
func TestDeviceInfo(t *testing.T) {
	b, root := world(map[string]string{NetworksKey: "vf"}), t.TempDir()
	write(t, filepath.Join(root, handedOut, "example.com-vf-0000:01:00.1-device.json"),
		`{"type":"pci","version":"1.1.0","pci":{"pci-address":"0000:01:00.1"}}`)
	vf := b.networks["app/vf"]
	vf.Config = `{"type":"sriov","capabilities":{"CNIDeviceInfoFile":true,"deviceID":true}}`
	b.networks["app/vf"] = vf
	got, err := (&Resolver{Cluster: b, Devices: b, Root: root}).Resolve(t.Context(), callOf(t, fmt.Sprintf(delegates, "")))
	if err != nil {
		t.Fatal(err)
	}
	a := got.Attachments[1]
	const path = attached + "/app-vf-c1_net1"
	if want := `"runtimeConfig":{"CNIDeviceInfoFile":"` + path +
		`","deviceID":"0000:01:00.1"}`; !strings.Contains(string(a.Network.Plugins[0].Raw), want) {
		t.Errorf("%s", a.Network.Plugins[0].Raw)
	}
	if err := a.KeepDeviceInfo(); err != nil {
		t.Fatal(err)
	}
	if d := ReadDeviceInfo(a.Request.Origin.DeviceFile); a.Request.Origin.DeviceFile != root+path || d == nil ||
		d.PCI.PCIAddress != "0000:01:00.1" {
		t.Errorf("%s: %+v", a.Request.Origin.DeviceFile, d)
	}
	DropDeviceInfo(a.Request.Origin.DeviceFile)
	if ReadDeviceInfo(a.Request.Origin.DeviceFile) != nil {
		t.Error("it is left")
	}
}

// A device of weft's of a network of type macvtap is attached by weft's own plugin; other vendors' devices by theirs.
func TestMacvtapDevice(t *testing.T) {
	for device, want := range map[string]string{
		"tap1879048193-bridge-eth1": `weft-macvtap deviceID"tap1879048193-bridge-eth1"`,
		"dataplaneMvp0":             `macvtap deviceID"dataplaneMvp0"`,
	} {
		b := world(map[string]string{NetworksKey: `[{"name":"dataplane","mac":"02:00:00:00:00:07"}]`})
		b.devices = map[string][]string{"macvtap.network.kubevirt.io/dataplane": {device}}
		n := model.NetworkAttachment{
			Namespace: "app", Name: "dataplane", Config: `{"cniVersion":"0.3.1","name":"dataplane","type":"macvtap","mtu":1400}`,
			Annotations: map[string]string{ResourceKey: "macvtap.network.kubevirt.io/dataplane"},
		}
		b.networks[n.String()] = n
		got, err := (&Resolver{Cluster: b, Devices: b}).Resolve(t.Context(), callOf(t, fmt.Sprintf(delegates, "")))
		if err != nil {
			t.Fatal(err)
		}
		line := lines(t, got)[1]
		if !strings.Contains(line, "MAC=02:00:00:00:00:07") || !strings.Contains(line, want) {
			t.Errorf("%s: %s", device, line)
		}
	}
}

// A pod that the cluster does not have gets what every pod gets; one that cannot be looked up is tried again.
func TestUnknownPod(t *testing.T) {
	b := world(nil)
	delete(b.pods, "app/web")
	call := callOf(t, fmt.Sprintf(delegates, ""))
	got, err := (&Resolver{Cluster: b}).Resolve(t.Context(), call)
	if err != nil || len(got.Attachments) != 1 {
		t.Errorf("%+v %v", got, err)
	}
	b.down = true
	_, err = (&Resolver{Cluster: b}).Resolve(t.Context(), call)
	var f *model.Error
	if !errors.As(err, &f) || f.Code != model.CodeTryAgain ||
		f.Msg != "pod app/web is not known yet: the API server does not answer" {
		t.Error(err)
	}
}
