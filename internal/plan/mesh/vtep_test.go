// SPDX-License-Identifier: Apache-2.0

package mesh_test

import (
	"testing"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/plan/mesh"
	"github.com/weft-net/weft/internal/state"
)

// TestVtepSeed: a node that publishes its first VtepMAC publishes a random one, which is its device's; what was published stays, and
// peers go by it.
func TestVtepSeed(t *testing.T) {
	a, b := node("a", "192.168.0.1", "fd00::1", "10.244.1.0/24", "fd00:244:1::/64"), node("b", "192.168.0.2", "10.244.2.0/24")
	planned := func(self model.Node, how mesh.Config) (mesh.Topology, [2]state.MAC) {
		topo := planAs(t, how, &model.Cluster{Self: "a", Nodes: []model.Node{self, b}}, poolLinks()...)
		var macs [2]state.MAC
		for _, l := range topo.Node.Host.Links {
			switch l.Name {
			case "flannel.1":
				macs[0] = l.MAC
			case "flannel-v6.1":
				macs[1] = l.MAC
			}
		}
		return topo, macs
	}
	_, plain := planned(a, mesh.Config{Backend: "vxlan"})
	one, first := planned(a, mesh.Config{Backend: "vxlan", VtepSeed: "one"})
	_, second := planned(a, mesh.Config{Backend: "vxlan", VtepSeed: "two"})
	if first == second || first == plain || second == plain || first[0] == first[1] {
		t.Fatalf("by the name %v, by seeds %v and %v", plain, first, second)
	}
	self := a
	self.Published = &one.Publish
	if topo, macs := planned(self, mesh.Config{Backend: "vxlan", VtepSeed: "two"}); macs != first || topo.Publish.Data != one.Publish.Data {
		t.Errorf("what was published does not stay: %v, %s", macs, topo.Publish.Data)
	}
	seen := planAs(t, mesh.Config{Backend: "vxlan", VtepSeed: "three"}, &model.Cluster{Self: "b", Nodes: []model.Node{self, b}}, "eth0 192.168.0.2/24")
	if neighs := seen.Peers[0].Fragment.Host.Neighs; len(neighs) != 1 || neighs[0].MAC != first[0] {
		t.Errorf("the peer goes by %v, want %v", neighs, first[0])
	}
	pools := mesh.Config{Pools: true, VtepSeed: "one"}
	topo := planAs(t, pools, &model.Cluster{Self: "a", Nodes: []model.Node{a, b}, Pools: []model.AddressPool{pool("one", "10.1.0.0/16", "vxlan")}}, poolLinks()...)
	for _, l := range topo.Node.Host.Links {
		if l.Name == "flannel.1" && l.MAC != plain[0] {
			t.Errorf("an address that nobody is told of is %v, want %v", l.MAC, plain[0])
		}
	}
}
