// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/containernetworking/cni/libcni"
	"sigs.k8s.io/yaml"

	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/nettest"
)

// foreignWire is a network of the reference plugin macvlan under a name that is not built into weft, with a default
// route of each family from its own IPAM.
func (p *podnets) foreignWire(i int, version string) string {
	return fmt.Sprintf(`{%s"type":"other-macvlan","master":"up0","ipam":{"type":"host-local","dataDir":%q,
		"ranges":[[{"subnet":"10.6%d.0.0/24"}],[{"subnet":"fd6%d::/64"}]],
		"routes":[{"dst":"0.0.0.0/0","gw":"10.6%d.0.1"},{"dst":"::/0","gw":"fd6%d::1"}]}}`, version, p.path("addresses"), i, i, i, i)
}

// defaults returns a namespace's default routes, a line for each gateway, sorted by the kernel.
func defaults(t *testing.T, ns *netns.NS) string {
	t.Helper()
	var all []string
	for _, family := range []string{"-4", "-6"} {
		var routes []struct {
			Gateway, Dev string
			Nexthops     []struct{ Gateway, Dev string }
		}
		if err := json.Unmarshal([]byte(nettest.Run(t, ns, "ip", "-j", family, "route", "show", "default")),
			&routes); err != nil {
			t.Fatal(err)
		}
		for _, r := range routes {
			if r.Gateway != "" {
				all = append(all, r.Gateway+" "+r.Dev)
			}
			for _, n := range r.Nexthops {
				all = append(all, n.Gateway+" "+n.Dev)
			}
		}
	}
	return strings.Join(all, ", ")
}

// TestDefaultRoutesOfForeignPlugins: if networks have plugins that weft executes, the pod has the documented default
// routes, CHECK succeeds, nothing is left, and the network status equals Multus's.
func TestDefaultRoutesOfForeignPlugins(t *testing.T) {
	nettest.EndToEnd(t)
	bin := os.Getenv("WEFT_PEER_BIN_DIR")
	if bin == "" {
		nettest.SkipMissing(t, "WEFT_PEER_BIN_DIR is not set: no foreign plugin makes default routes")
	}
	p := newPodnets(t)
	p.env = nil // the reference plugins wait for the duplicate address detection of IPv6
	if err := os.Mkdir(p.path("bin"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, of := range map[string]string{"other-macvlan": "macvlan", "other-ptp": "ptp", "host-local": "host-local"} {
		if err := os.Symlink(filepath.Join(bin, of), p.path("bin", name)); err != nil {
			t.Fatal(err)
		}
	}
	p.cni = libcni.NewCNIConfigWithCacheDir([]string{os.Getenv(binVar), p.path("bin")}, p.path("cache"), p.patient())
	for i := 1; i <= 2; i++ {
		p.network("default", fmt.Sprint("wire", i), p.foreignWire(i, `"cniVersion":"1.0.0",`))
	}
	p.network("default", "old", p.foreignWire(3, ""))
	p.start()
	const first = "10.7.0.1 eth0"
	for _, tc := range []struct{ name, networks, routes, gateways string }{
		{"none", `wire1,wire2`, first + ", fd61::1 net1", "net1 10.61.0.1 fd61::1; net2 10.62.0.1 fd62::1"},
		{
			"its own", `[{"name":"wire1","default-route":["10.61.0.1"]}]`, "10.61.0.1 net1, fd61::1 net1",
			"net1 10.61.0.1 fd61::1",
		},
		{
			"another", `[{"name":"wire1","default-route":["10.61.0.9"]},{"name":"wire2"}]`, "10.61.0.9 net1, fd61::1 net1",
			"net1 10.61.0.1 fd61::1; net2 10.62.0.1 fd62::1",
		},
		{
			"two", `[{"name":"wire1","default-route":["10.61.0.8","10.61.0.9"]}]`,
			"10.61.0.8 net1, 10.61.0.9 net1, fd61::1 net1", "net1 10.61.0.1 fd61::1",
		},
		{
			"both families", `[{"name":"wire2"},{"name":"wire1","default-route":["10.61.0.1","fd61::9"]}]`,
			"10.61.0.1 net2, fd61::9 net2", "net1 10.62.0.1 fd62::1; net2 10.61.0.1 fd61::1",
		},
		{
			"empty", `[{"name":"wire2"},{"name":"wire1","default-route":[]}]`, "10.61.0.1 net2, fd61::1 net2",
			"net1 10.62.0.1 fd62::1; net2 10.61.0.1 fd61::1",
		},
		{"no version", `old`, first + ", fd63::1 net1", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for _, typ := range []string{"ptp", "other-ptp"} {
				name := strings.ReplaceAll(tc.name, " ", "-") + "-" + typ
				p.pod(name, tc.networks)
				ns := nettest.NS(t, name)
				list, conf := p.runtimes(name, ns)
				list, err := libcni.NetworkConfFromBytes(
					[]byte(strings.Replace(string(list.Bytes), `"type":"ptp"`, `"type":"`+typ+`"`, 1)),
				)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := p.cni.AddNetworkList(p.ctx(), list, conf); err != nil {
					t.Fatalf("%s: %v\n%s", typ, err, p.log())
				}
				if got := defaults(t, ns); got != tc.routes {
					t.Errorf("%s: default routes are %s, want %s", typ, got, tc.routes)
				}
				if err := p.cni.CheckNetworkList(p.ctx(), list, conf); err != nil {
					t.Errorf("%s: CHECK: %v", typ, err)
				}
				want := strings.TrimSuffix("eth0 <nil>; "+tc.gateways, "; ")
				if got := p.statusGateways(name); got != want {
					t.Errorf("%s: the status says %s, want %s", typ, got, want)
				}
				if err := p.cni.DelNetworkList(p.ctx(), list, conf); err != nil {
					t.Errorf("%s: DEL: %v", typ, err)
				}
				links := func() string { return nettest.Run(t, ns, "ip", "-o", "link") }
				if left := p.lacks(links, "eth0", "net1"); left != "" {
					t.Errorf("%s: left: %s", typ, left)
				}
			}
		})
	}
}

// statusGateways waits for a pod's network status, and returns its interfaces with the gateways.
func (p *podnets) statusGateways(pod string) string {
	p.t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for time.Now().Before(deadline) {
		var o struct {
			Metadata struct{ Annotations map[string]string }
		}
		var entries []struct {
			Interface string
			Gateway   []string
		}
		b, err := os.ReadFile(filepath.Join(p.store, "pod-"+pod+".yaml"))
		if err == nil && yaml.Unmarshal(b, &o) == nil &&
			json.Unmarshal([]byte(o.Metadata.Annotations["k8s.v1.cni.cncf.io/network-status"]), &entries) == nil {
			var all []string
			for _, e := range entries {
				all = append(all, strings.Join(append([]string{e.Interface}, e.Gateway...), " "))
			}
			return strings.Join(all, "; ")
		}
		time.Sleep(20 * time.Millisecond)
	}
	p.t.Errorf("no network status of pod %s: %s", pod, p.log())
	return ""
}
