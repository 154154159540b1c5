// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/nettest"
)

const (
	bringsAlong = "cni.projectcalico.org/ipAddrsNoIpam"
	floatsTo    = "cni.projectcalico.org/floatingIPs"
)

// detach deletes a pod that namedOn has started.
func (p two) detach(w *world, namespace, name string, ns *netns.NS) {
	p.t.Helper()
	list, err := w.own()
	if err == nil {
		conf := runtimeConf("id-"+name, ns)
		conf.Args = [][2]string{{"K8S_POD_NAMESPACE", namespace}, {"K8S_POD_NAME", name}, {"K8S_POD_UID", "uid-" + name}}
		err = w.cni.DelNetworkList(w.ctx(), list, conf)
	}
	if err != nil {
		p.t.Error(err)
	}
}

// TestUnmanagedAddresses: a pod's unmanaged addresses and floating IPs are reachable from the pods of other nodes and
// from these nodes, if the configuration permits them; their packets keep their source address. No other pod in the
// cluster gets such an address while its pod exists, nor one of another node's block; the next pod gets it, on any
// node, and after a restart of the agents; and nothing is left in the end.
func TestUnmanagedAddresses(t *testing.T) {
	nettest.EndToEnd(t)
	p := newTwo(t, "permit: [ipAddrsNoIpam, floatingIPs], podAddresses: [172.16.0.0/24, 198.51.100.0/24], "+
		"pools: [{cidr: 10.77.0.0/24, blockSize: 28, encapsulation: vxlan, natOutgoing: true}]")
	n1, n2 := p.nodes[0], p.nodes[1]
	for name, says := range map[string]map[string]string{
		"brings": {bringsAlong: `["172.16.0.9"]`}, "floats": {floatsTo: `["198.51.100.7"]`},
		"outside": {bringsAlong: `["172.16.1.9"]`},
	} {
		p.put("Pod", "team", name, says)
	}
	for _, name := range []string{"other", "rival", "heir"} {
		p.putOn("n2", "Pod", "team", name, map[string]map[string]string{
			"rival": {floatsTo: `["172.16.0.9"]`}, "heir": {bringsAlong: `["172.16.0.9"]`},
		}[name])
	}
	start := func(w *world, name string) *netns.NS {
		t.Helper()
		ns, _, err := p.namedOn(w, "team", name)
		if err != nil {
			t.Fatalf("%s: %v\n%s", name, err, w.log())
		}
		return ns
	}
	other, _, err := p.namedOn(n2, "team", "other")
	if err != nil {
		t.Fatal(err)
	}
	brings, floats := start(n1, "brings"), start(n1, "floats")
	start(n1, "outside")
	led := []netip.Addr{netip.MustParseAddr("172.16.0.9"), netip.MustParseAddr("198.51.100.7")}
	p.reaches(other, led)
	p.reaches(n2.node, led)
	p.reaches(brings, led[1:])
	p.until("packets to the addresses are not masqueraded", func() bool {
		out, _ := nettest.Try(n2.node, "nft", "list", "set", "inet", "weft-cluster", "cluster4")
		return strings.Contains(out, "172.16.0.9") && strings.Contains(out, "198.51.100.7")
	})
	routes := func(w *world) string { return nettest.Run(t, w.node, "ip", "route", "show", "table", "main") }
	if r := routes(n2); strings.Contains(r, "172.16.1.9") {
		t.Errorf("nobody permitted this: %s", r)
	}
	refused := func(name, want string) {
		t.Helper()
		if _, _, err := p.namedOn(n2, "team", name); err == nil || !strings.Contains(err.Error(), want) ||
			code(err) != uint(model.CodeInUse) {
			t.Errorf("%s: %v, want an error about %q", name, err, want)
		}
	}
	refused("rival", "address 172.16.0.9 is taken by pod team/brings on node n1")
	foreign, _ := p.pod(n1, "plain")
	own := nettest.Run(t, foreign, "ip", "-4", "-o", "addr", "show", "eth0")
	own = own[strings.Index(own, "inet ")+len("inet "):]
	own, _, _ = strings.Cut(own, "/")
	p.putOn("n2", "Pod", "team", "thief", map[string]string{bringsAlong: `["` + own + `"]`})
	refused("thief", "of node n1")
	for _, w := range p.nodes {
		w.kill()
		w.start()
	}
	p.reaches(other, led)
	p.detach(n1, "team", "floats", floats)
	p.until("the way to a floating address goes with its pod", func() bool {
		return !strings.Contains(routes(n2), "198.51.100.7")
	})
	// The pod is gone and its node has not said so: as when the node died.
	n1.kill()
	if err := p.store.Delete(t.Context(), store.PodKey("team", "brings"), ""); err != nil {
		t.Fatal(err)
	}
	var heir *netns.NS
	p.until("the next pod has the address", func() bool {
		heir, _, err = p.namedOn(n2, "team", "heir")
		return err == nil
	})
	p.reaches(other, led[:1])
	n1.start()
	p.detach(n1, "team", "brings", brings)
	p.reaches(n1.node, led[:1])
	p.detach(n2, "team", "heir", heir)
	p.until("nothing is left", func() bool {
		o, err := p.store.Get(store.NodeKey("n2"))
		return err == nil && !strings.Contains(string(o.Raw), store.UnmanagedAnnotation) &&
			!strings.Contains(routes(n1), "172.16.0.9")
	})
}
