// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/nettest"
	"github.com/weft-net/weft/internal/state"
)

// vtep is the address of a node's VXLAN device.
func (w *world) vtep() string { return macOf(w.node, "flannel.1") }

// macOf returns the MAC address of a device, empty if there is none.
func macOf(ns *netns.NS, device string) string {
	out, _ := nettest.Try(ns, "ip", "-o", "link", "show", device)
	_, mac, _ := strings.Cut(out, "link/ether ")
	mac, _, _ = strings.Cut(mac, " ")
	return mac
}

// TestVTEPInDirectory: nodes whose objects are in a directory have random VTEP MAC addresses, which their manifests
// contain, and reach each other by them; an agent that was started again keeps its node's.
func TestVTEPInDirectory(t *testing.T) {
	nettest.EndToEnd(t)
	nettest.Need(t, "vxlan")
	for name, network := range map[string]string{
		"own backend": "encapsulation: vxlan",
		"pool":        twoPools,
	} {
		t.Run(name, func(t *testing.T) {
			p := newTwo(t, network)
			says := func(node string) string {
				o, err := p.store.Get(store.NodeKey(node))
				if err != nil {
					t.Fatal(err)
				}
				n, err := o.Node()
				if err != nil {
					t.Fatal(err)
				}
				return n.VTEP.V4
			}
			var first []string
			for i, w := range p.nodes {
				node := fmt.Sprintf("n%d", i+1)
				plain := state.SeedMAC("vtep/4/" + node).String()
				p.until(node+" has the random address that it says", func() bool {
					mac, err := net.ParseMAC(w.vtep())
					return err == nil && mac.String() != plain && strings.Contains(says(node), mac.String())
				})
				first = append(first, w.vtep())
			}
			from, _ := p.pod(p.nodes[0], "a")
			_, to := p.pod(p.nodes[1], "b")
			p.reaches(from, to)
			p.nodes[0].kill()
			p.nodes[0].start()
			p.reaches(from, to)
			if now := p.nodes[0].vtep(); now != first[0] {
				t.Errorf("started again, the node's address is %s instead of %s", now, first[0])
			}
		})
	}
}

// TestVTEPNotPublished: an agent that publishes nothing does not change the manifest, and uses the address that an
// operator has written there.
func TestVTEPNotPublished(t *testing.T) {
	nettest.EndToEnd(t)
	nettest.Need(t, "vxlan")
	p := newTwo(t, "encapsulation: vxlan}\nflannel: {publish: false")
	plain := state.SeedMAC("vtep/4/n1").String()
	p.until("the address that comes from the name", func() bool { return p.nodes[0].vtep() == plain })
	const other = "02:00:00:00:00:0a"
	if _, err := p.store.Modify(t.Context(), store.NodeKey("n1"), store.Annotate(map[string]string{
		"flannel.alpha.coreos.com/weft-vtep": `{"VNI":1,"VtepMAC":"` + other + `"}`,
	})); err != nil {
		t.Fatal(err)
	}
	p.until("the address that is written", func() bool { return p.nodes[0].vtep() == other })
	from, _ := p.pod(p.nodes[0], "a")
	_, to := p.pod(p.nodes[1], "b")
	p.reaches(from, to)
	for _, node := range []string{"n1", "n2"} {
		o, err := p.store.Get(store.NodeKey(node))
		if err != nil {
			t.Fatal(err)
		}
		if n, err := o.Node(); err != nil || node == "n2" && len(n.Annotations) > 0 || len(n.Annotations) > 1 {
			t.Errorf("%s: %v %v", node, n.Annotations, err)
		}
	}
}
