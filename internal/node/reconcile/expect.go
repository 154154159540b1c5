// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"hash/maphash"
	"net/netip"
	"sync"

	"github.com/weft-net/weft/internal/kernel/watch"
	"github.com/weft-net/weft/internal/plan/mesh"
	"github.com/weft-net/weft/internal/state"
)

// expected are the routes and tunnels that the kernel should have. Netlink also notifies of weft's own changes; these
// are ignored if they are expected. So expected is updated before the kernel.
//
// There may be ten thousand of each, so they are known by hashes of 64 bits. Of two with one hash a change of the kernel
// would be noticed by the next full pass only.
type expected struct {
	mu     sync.Mutex
	seed   maphash.Seed
	links  map[string]bool
	routes map[uint64]struct{}  // by routeID, one for each next hop
	neighs map[uint64]state.MAC // by neighAt
	fdbs   map[uint64]uint64    // by fdbAt: the destination
}

type neighAt struct {
	link string
	ip   netip.Addr
}

type fdbAt struct {
	link string
	mac  state.MAC
}

func newExpected() *expected {
	return &expected{
		seed: maphash.MakeSeed(), links: map[string]bool{}, routes: map[uint64]struct{}{}, neighs: map[uint64]state.MAC{},
		fdbs: map[uint64]uint64{},
	}
}

// set replaces what is expected.
func (e *expected) set(t mesh.Topology) {
	e.mu.Lock()
	defer e.mu.Unlock()
	routes, neighs := 0, 0
	for i := range t.Peers {
		routes, neighs = routes+len(t.Peers[i].Routes()), neighs+len(t.Peers[i].Neighs())
	}
	e.links, e.routes = map[string]bool{}, make(map[uint64]struct{}, routes)
	e.neighs, e.fdbs = make(map[uint64]state.MAC, neighs), make(map[uint64]uint64, neighs)
	e.add(t.Node.Host)
	for i := range t.Peers {
		e.add(t.Peers[i].Fragment().Host)
	}
	for _, f := range t.Learned {
		e.add(f.Host)
	}
}

// change adds and removes expected objects.
func (e *expected) change(more, gone state.Space) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, r := range gone.Routes {
		for _, h := range r.Hops() {
			delete(e.routes, e.routeKey(identify(r.Over(h))))
		}
	}
	for _, n := range gone.Neighs {
		delete(e.neighs, e.neighKey(n))
	}
	for _, f := range gone.FDBs {
		delete(e.fdbs, e.fdbKey(f))
	}
	e.add(more)
}

func (e *expected) add(s state.Space) {
	for _, l := range s.Links {
		e.links[l.Name] = true
	}
	for _, r := range s.Routes {
		for _, h := range r.Hops() {
			e.routes[e.routeKey(identify(r.Over(h)))] = struct{}{}
		}
	}
	for _, n := range s.Neighs {
		e.neighs[e.neighKey(n)] = n.MAC
	}
	for _, f := range s.FDBs {
		e.fdbs[e.fdbKey(f)] = maphash.Comparable(e.seed, f.Dst)
	}
}

func (e *expected) routeKey(r routeID) uint64 { return maphash.Comparable(e.seed, r) }

func (e *expected) neighKey(n state.Neigh) uint64 {
	return maphash.Comparable(e.seed, neighAt{n.Link, n.IP})
}

func (e *expected) fdbKey(f state.FDB) uint64 {
	return maphash.Comparable(e.seed, fdbAt{f.Link, f.MAC})
}

func (e *expected) hasRoute(r state.Route) bool { return len(e.unexpected(r)) == 0 }

// unexpected returns a route over each of its next hops that is not expected.
func (e *expected) unexpected(r state.Route) (out []state.Route) {
	if len(r.NextHops) == 0 { // most routes
		if _, ok := e.routes[e.routeKey(identify(r))]; !ok {
			out = append(out, r)
		}
		return out
	}
	for _, h := range r.Hops() {
		one := r.Over(h)
		if _, ok := e.routes[e.routeKey(identify(one))]; !ok {
			out = append(out, one)
		}
	}
	return out
}

func (e *expected) hasNeigh(n state.Neigh) bool {
	_, ok := e.neighs[e.neighKey(n)]
	return ok
}

func (e *expected) hasFDB(f state.FDB) bool {
	_, ok := e.fdbs[e.fdbKey(f)]
	return ok
}

// route reports whether a notification of a route is unexpected: an expected one is gone, or another one was added.
func (e *expected) route(s watch.Event) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	_, wanted := e.routes[e.routeKey(routeID{s.Dst, s.Gw, s.Link, s.Metric})]
	return s.Gone == wanted
}

// entry reports whether a notification of a neighbor or an FDB entry on a device of the mesh is unexpected.
func (e *expected) entry(s watch.Event) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	right, wanted := false, false
	if s.Bridge {
		if !s.Addr.IsValid() && !s.Gone {
			return false // older kernels (such as Linux 6.12) notify twice, the second time without the tunnel's end
		}
		var dst uint64
		dst, wanted = e.fdbs[e.fdbKey(state.FDB{Link: s.Link, MAC: s.MAC})]
		right = dst == maphash.Comparable(e.seed, s.Addr)
	} else {
		var mac state.MAC
		mac, wanted = e.neighs[e.neighKey(state.Neigh{Link: s.Link, IP: s.Addr})]
		right = mac == s.MAC
	}
	if !wanted {
		return s.Permanent && !s.Gone // added by another program
	}
	return s.Gone || !s.Permanent || !right
}
