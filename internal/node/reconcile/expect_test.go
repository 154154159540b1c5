// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"net/netip"
	"testing"

	"github.com/weft-net/weft/internal/kernel/watch"
	"github.com/weft-net/weft/internal/state"
)

// TestUnexpected: what the kernel reports of weft's own changes is no news, what others do is.
func TestUnexpected(t *testing.T) {
	dst, gw, far := netip.MustParsePrefix("10.244.2.0/24"), netip.MustParseAddr("10.244.2.0"),
		netip.MustParseAddr("192.168.0.2")
	mac, other := state.MAC{2, 0, 0, 0, 0, 2}, [6]byte{2, 0, 0, 0, 0, 9}
	peer := state.Space{
		Routes: []state.Route{{Dst: dst, Gw: gw, Link: "flannel.1", Metric: 7}},
		Neighs: []state.Neigh{{Link: "flannel.1", IP: gw, MAC: mac}},
		FDBs:   []state.FDB{{Link: "flannel.1", MAC: mac, Dst: far}},
	}
	e := newExpected()
	e.change(peer, state.Space{})
	route := watch.Event{Kind: watch.Route, Dst: dst, Gw: gw, Link: "flannel.1", Metric: 7}
	neigh := watch.Event{Kind: watch.Neigh, Link: "flannel.1", Addr: gw, MAC: mac, Permanent: true}
	fdb := watch.Event{Kind: watch.Neigh, Link: "flannel.1", Addr: far, MAC: mac, Permanent: true, Bridge: true}
	gone := func(s watch.Event) watch.Event { s.Gone = true; return s }
	with := func(s watch.Event, f func(*watch.Event)) watch.Event { f(&s); return s }
	for _, c := range []struct {
		name            string
		sign            watch.Event
		wanted, unknown bool // whether it is news while the peer is expected, and after it has left
	}{
		{"route comes", route, false, true},
		{"route goes", gone(route), true, false},
		{"route with another gateway comes", with(route, func(s *watch.Event) { s.Gw = far }), true, true},
		{"neighbor comes", neigh, false, true},
		{"neighbor goes", gone(neigh), true, false},
		{"neighbor is forgotten", with(neigh, func(s *watch.Event) { s.Permanent = false }), true, false},
		{"neighbor has another address", with(neigh, func(s *watch.Event) { s.MAC = other }), true, true},
		{"entry comes", fdb, false, true},
		{
			"entry is told again without its tunnel's end", with(fdb, func(s *watch.Event) { s.Addr = netip.Addr{} }),
			false, false,
		},
		{"entry goes", gone(fdb), true, false},
		{"entry leads elsewhere", with(fdb, func(s *watch.Event) { s.Addr = gw }), true, true},
	} {
		unexpected := e.entry
		if c.sign.Kind == watch.Route {
			unexpected = e.route
		}
		if got := unexpected(c.sign); got != c.wanted {
			t.Errorf("%s, expected: news %v", c.name, got)
		}
		e.change(state.Space{}, peer)
		if got := unexpected(c.sign); got != c.unknown {
			t.Errorf("%s, after it left: news %v", c.name, got)
		}
		e.change(peer, state.Space{})
	}
}
