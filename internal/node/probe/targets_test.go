// SPDX-License-Identifier: Apache-2.0

package probe_test

import (
	"net/netip"
	"strings"
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

// TestLearnedRoutes: a peer that routes of BGP reach, be it by the route of several nodes as one, is neither probed nor taken
// for one without a route; one that none of them leads to is.
func TestLearnedRoutes(t *testing.T) {
	cidr := netip.MustParsePrefix("10.42.2.0/24")
	top := mesh.Topology{
		Underlay: []mesh.Underlay{{Link: "eth0", Address: netip.MustParseAddr("172.18.0.1"), MTU: 1500}},
		Peers: []*mesh.Peer{
			{Name: "far", PodCIDRs: []netip.Prefix{cidr}, Addrs: []netip.Addr{netip.MustParseAddr("172.18.0.2")}},
			{Name: "lost", PodCIDRs: []netip.Prefix{netip.MustParsePrefix("10.43.2.0/24")}},
		},
	}
	for _, dst := range []string{"10.42.2.0/24", "10.42.0.0/16"} {
		router := netip.MustParseAddr("172.18.0.9")
		route := mesh.LearnedRoute(netip.MustParsePrefix(dst), "eth0")
		route.Gw = router
		top.Learned = []state.Fragment{{Owner: "bgp:tor", Host: state.Space{Routes: []state.Route{route}}}}
		paths := top.PeerPaths(top.Peers[0])
		if len(paths) != 1 || !paths[0].Learned || paths[0].CIDR != cidr || paths[0].Gateway != router ||
			paths[0].Far != top.Peers[0].Addrs[0] || paths[0].Tunnel {
			t.Errorf("%s: paths %+v", dst, paths)
		}
		targets, missing, err := probe.Targets(top, nil)
		if err != nil || len(targets) != 0 || len(missing) != 2 || !missing[0].Learned || missing[1].Learned {
			t.Errorf("%s: %+v, %+v, %v", dst, targets, missing, err)
		}
	}
	if text := top.Text(); !strings.Contains(text, "learned route 10.42.2.0/24 dev eth0") || !strings.Contains(text, "not reached") {
		t.Errorf("%s", text)
	}
}
