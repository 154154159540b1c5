// SPDX-License-Identifier: Apache-2.0

package probe_test

import (
	"net/netip"
	"testing"

	"github.com/weft-net/weft/internal/node/probe"
	"github.com/weft-net/weft/internal/plan/mesh"
	"github.com/weft-net/weft/internal/state"
)

// The largest packet is the pods': an address of a pod that answers takes no larger one from a tunnel of IPv4, which with
// both families carries more.
func TestLargestPacket(t *testing.T) {
	cidr := netip.MustParsePrefix("10.42.2.0/24")
	top := mesh.Topology{
		Node:     state.Fragment{Host: state.Space{Links: []state.Link{{Name: "flannel.1", MTU: 1450}}}},
		Underlay: []mesh.Underlay{{Link: "eth0", Address: netip.MustParseAddr("172.18.0.1"), MTU: 1500}},
		Peers: []*mesh.Peer{{
			Name: "far", PodCIDRs: []netip.Prefix{cidr}, Addrs: []netip.Addr{netip.MustParseAddr("172.18.0.2")},
		}},
	}
	top.Peers[0].SetHost(state.Space{Routes: []state.Route{{Dst: cidr, Link: "flannel.1"}}}, nil)
	for pods, want := range map[int]int{0: 1450, 1430: 1430, 1500: 1450} {
		top.MTU = pods
		targets, missing, err := probe.Targets(top, nil)
		if err != nil || len(missing) != 0 || len(targets) != 1 || targets[0].OverlayMTU != want {
			t.Errorf("pods with %d: %+v, %v, %v, want %d", pods, targets, missing, err, want)
		}
	}
}
