// SPDX-License-Identifier: Apache-2.0

package mesh_test

import (
	"testing"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/plan/mesh"
	"github.com/weft-net/weft/internal/state"
)

// A node that publishes its first VtepMAC publishes a random one, which is its device's; a published one stays, and
// peers use it.
func TestVTEPSeed(t *testing.T) {
	a, b := node("a", "192.168.0.1", "fd00::1", "10.244.1.0/24", "fd00:244:1::/64"),
		node("b", "192.168.0.2", "10.244.2.0/24")
	planned := func(self model.Node, how mesh.Config) (mesh.Topology, [2]state.MAC) {
		topo := planAs(t, how, &model.Cluster{Self: "a", Nodes: []model.Node{self, b}}, poolLinks()...)
		return topo, macs(topo)
	}
	_, plain := planned(a, mesh.Config{Backend: "vxlan"})
	one, first := planned(a, mesh.Config{Backend: "vxlan", VTEPSeed: "one"})
	_, second := planned(a, mesh.Config{Backend: "vxlan", VTEPSeed: "two"})
	if first == second || first == plain || second == plain || first[0] == first[1] {
		t.Fatalf("by the name %v, by seeds %v and %v", plain, first, second)
	}
	self := a
	self.Published = &one.Publish
	if topo, macs := planned(self, mesh.Config{Backend: "vxlan", VTEPSeed: "two"}); macs != first ||
		topo.Publish.Data != one.Publish.Data {
		t.Errorf("what was published does not stay: %v, %s", macs, topo.Publish.Data)
	}
	seen := planAs(t, mesh.Config{Backend: "vxlan", VTEPSeed: "three"},
		&model.Cluster{Self: "b", Nodes: []model.Node{self, b}}, "eth0 192.168.0.2/24")
	if neighs := seen.Peers[0].Fragment().Host.Neighs; len(neighs) != 1 || neighs[0].MAC != first[0] {
		t.Errorf("the peer goes by %v, want %v", neighs, first[0])
	}
}

// macs returns the MAC addresses of a node's VXLAN devices, for IPv4 and IPv6.
func macs(topo mesh.Topology) (out [2]state.MAC) {
	for _, l := range topo.Node.Host.Links {
		switch l.Name {
		case "flannel.1":
			out[0] = l.MAC
		case "flannel-v6.1":
			out[1] = l.MAC
		}
	}
	return out
}

// Without a VtepMAC in vxlan's own data, nodes publish it separately. A node chooses a random address only when all
// peers read that, and its device has it only after it was published; then it stays, and the peers use it.
func TestVTEPPublish(t *testing.T) {
	inPool := []model.AddressPool{pool("one", "10.1.0.0/16", "fd01::/64", "vxlan")}
	blocks := []model.AddressBlock{
		block("one", "10.1.0.0/26", "a"), block("one", "10.1.0.64/26", "b"), block("one", "fd01::/122", "b"),
	}
	published := node("c", "192.168.0.3", "fd00::3")
	for name, tc := range map[string]struct {
		how       mesh.Config
		pools     []model.AddressPool
		published *model.Published
		stays     bool // the data has it, and says the same
	}{
		"directory": {how: mesh.Config{Backend: "vxlan", PublishVTEPOnly: true}},
		"pool beside host-gw": {
			how: mesh.Config{
				Pools: true,
			}, pools: inPool, published: &model.Published{Backend: "host-gw", Addrs: published.Addrs[:0]},
		},
		"pool in a directory": {how: mesh.Config{Pools: true, PublishVTEPOnly: true}, pools: inPool},
		"pool beside own vxlan": {
			how: mesh.Config{Backend: "vxlan", Pools: true}, pools: inPool,
			published: &model.Published{
				Backend: "vxlan", Data: `{"VNI":1,"VtepMAC":"02:00:00:00:00:0a"}`,
				DataV6: `{"VNI":1,"VtepMAC":"02:00:00:00:00:06"}`,
			}, stays: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := node("a", "192.168.0.1", "fd00::1", "10.244.1.0/24", "fd00:244:1::/64"),
				node("b", "192.168.0.2", "fd00::2", "10.244.2.0/24", "fd00:244:2::/64")
			a.Published = tc.published
			if tc.published != nil {
				b.Published = &model.Published{Backend: "host-gw"}
			}
			plan := func(self, seed string) mesh.Topology {
				how, links := tc.how, poolLinks()
				if how.VTEPSeed = seed; self == "b" {
					links = []string{"eth0 192.168.0.2/24", "eth0 fd00::2/64"}
				}
				return planAs(t, how, &model.Cluster{Self: self, Nodes: []model.Node{a, b}, Pools: tc.pools, Blocks: blocks},
					links...)
			}
			silent := plan("a", "")
			plain := macs(silent)
			if silent.VTEP != (model.VTEPData{}) || plain[0].IsZero() || plain[1].IsZero() {
				t.Fatalf("without a seed it says %v of %v", silent.VTEP, plain)
			}
			first := plan("a", "one")
			says := func(m [2]state.MAC) model.VTEPData {
				return model.VTEPData{
					V4: `{"VNI":1,"VtepMAC":"` + m[0].String() + `"}`, V6: `{"VNI":1,"VtepMAC":"` + m[1].String() + `"}`,
				}
			}
			if macs(first) != plain || first.VTEP != says(plain) {
				t.Fatalf("while the other says nothing it has %v and says %v, want %v", macs(first), first.VTEP, plain)
			}
			a.VTEP = first.VTEP
			if again := plan("a", "one"); again.VTEP != first.VTEP {
				t.Fatalf("alone it changes what it says to %v", again.VTEP)
			}
			b.VTEP = model.VTEPData{V4: `{"VNI":1,"VtepMAC":"02:00:00:00:00:0b"}`}
			second := plan("a", "one")
			if macs(second) != plain {
				t.Errorf("the device is ahead of what is said: %v", macs(second))
			}
			if tc.stays {
				if second.VTEP != first.VTEP {
					t.Errorf("it says %v beside the data %v", second.VTEP, tc.published)
				}
				return
			}
			if other := plan("a", "two"); second.VTEP == first.VTEP || second.VTEP == other.VTEP {
				t.Fatalf("it says %v, and with another seed %v", second.VTEP, other.VTEP)
			}
			a.VTEP = second.VTEP
			third := plan("a", "two") // another process
			if says(macs(third)) != second.VTEP || third.VTEP != second.VTEP {
				t.Errorf("it has %v and says %v, want %v", macs(third), third.VTEP, second.VTEP)
			}
			b.VTEP = model.VTEPData{} // a node that does not say it comes back
			if fourth := plan("a", "two"); says(macs(fourth)) != second.VTEP || fourth.VTEP != second.VTEP {
				t.Errorf("what was said does not stay: %v, %v", macs(fourth), fourth.VTEP)
			}
			if by := plan("a", ""); says(macs(by)) != second.VTEP || by.VTEP != (model.VTEPData{}) {
				t.Errorf("where others have written it the device has %v, and it says %v", macs(by), by.VTEP)
			}
			seen := plan("b", "")
			var went []string
			for _, n := range seen.Peers[0].Fragment().Host.Neighs {
				went = append(went, n.MAC.String())
			}
			if m := macs(third); len(went) == 0 || went[0] != m[0].String() {
				t.Errorf("the peer goes by %v, want %v", went, m)
			}
		})
	}
}
