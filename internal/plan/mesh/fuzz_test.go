// SPDX-License-Identifier: Apache-2.0

package mesh_test

import (
	"testing"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/plan/mesh"
)

// With any published data a peer is reached or has a problem, and the other peers are reached.
func FuzzPublished(f *testing.F) {
	for _, data := range []string{
		"", "null", "{}", `{"VNI":1,"VtepMAC":"12:c6:65:89:b4:e3"}`, `{"PublicKey":"","Port":1}`, "[]", `"x"`,
	} {
		for _, backend := range []string{"vxlan", "host-gw", "udp", "wireguard", "ipsec", ""} {
			f.Add(backend, data)
		}
	}
	f.Fuzz(func(t *testing.T, backend, data string) {
		c := &model.Cluster{Self: "a", Nodes: []model.Node{
			node("a", "192.168.0.1", "10.244.1.0/24"), publishes(node("b", "192.168.0.2", "10.244.2.0/24"), backend, data),
			node("c", "192.168.0.3", "10.244.3.0/24"),
		}}
		topo := planAs(t, mesh.Config{Backend: "vxlan"}, c, "eth0 192.168.0.1/24")
		if b := topo.Peers[0]; b.Fragment().Host.Empty() && len(topo.Tunnels) == 0 && len(topo.Problems) == 0 &&
			backend != "alloc" {
			t.Errorf("%q %q: not reached, and nobody says why", backend, data)
		}
		if topo.Peers[1].Fragment().Host.Empty() && len(topo.Problems) < 1 {
			t.Errorf("%q %q: the other peer is lost", backend, data)
		}
	})
}
