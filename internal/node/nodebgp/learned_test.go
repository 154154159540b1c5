// SPDX-License-Identifier: Apache-2.0

package nodebgp

import (
	"net/netip"
	"reflect"
	"slices"
	"testing"

	"github.com/weft-net/weft/internal/plan/bgp"
	"github.com/weft-net/weft/internal/state"
)

// The route to a prefix has each next hop once, over its link, and does not depend on which path is the best.
func TestKernelRoute(t *testing.T) {
	addr := netip.MustParseAddr
	a, b, c, far, lost := addr("10.9.1.2"), addr("10.9.1.3"), addr("10.9.2.2"), addr("10.7.0.1"), addr("10.6.0.1")
	resolved := map[netip.Addr]hop{
		a: {a, "eth1"}, b: {b, "eth1"}, c: {c, "eth2"}, far: {a, "eth1"}, lost: {},
	}
	r := bgp.Route{Prefix: netip.MustParsePrefix("203.0.113.0/24")}
	for _, hop := range []netip.Addr{a, b, c, far, lost} {
		r.Paths = append(r.Paths, bgp.Path{Peer: hop, NextHop: hop})
	}
	want, peer, ok := kernelRoute(r, resolved)
	if !ok || peer != a || want.Gw != a || want.Link != "eth1" ||
		!slices.Equal(want.NextHops, []state.NextHop{{Gw: b}, {Gw: c, Link: "eth2"}}) {
		t.Fatalf("%v of %s, %t", want, peer, ok)
	}
	for range len(r.Paths) - 2 {
		r.Paths = append(r.Paths[1:4:4], r.Paths[0], r.Paths[4])
		if r.Paths[0].NextHop == far { // the peer would be another
			continue
		}
		if got, _, _ := kernelRoute(r, resolved); !reflect.DeepEqual(got, want) {
			t.Errorf("with another best path %v, not %v", got, want)
		}
	}
	r.Paths = r.Paths[4:]
	if got, _, ok := kernelRoute(r, resolved); ok {
		t.Errorf("next hops that cannot be reached: %v", got)
	}
}
