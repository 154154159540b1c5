// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"net/netip"
	"sync"

	"github.com/weft-net/weft/internal/kernel/watch"
	"github.com/weft-net/weft/internal/plan/mesh"
	"github.com/weft-net/weft/internal/state"
)

// expected are the routes and tunnels that the kernel should have. Netlink also notifies of weft's own changes; these
// are ignored if they are expected. So expected is updated before the kernel.
type expected struct {
	mu     sync.Mutex
	links  map[string]bool
	routes map[routeID]bool
	neighs map[neighAt]state.MAC
	fdbs   map[fdbAt]netip.Addr
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
		links: map[string]bool{}, routes: map[routeID]bool{}, neighs: map[neighAt]state.MAC{}, fdbs: map[fdbAt]netip.Addr{},
	}
}

// set replaces what is expected.
func (e *expected) set(t mesh.Topology) {
	e.mu.Lock()
	defer e.mu.Unlock()
	routes, neighs := 0, 0
	for i := range t.Peers {
		routes, neighs = routes+len(t.Peers[i].Fragment.Host.Routes), neighs+len(t.Peers[i].Fragment.Host.Neighs)
	}
	e.links, e.routes = map[string]bool{}, make(map[routeID]bool, routes)
	e.neighs, e.fdbs = make(map[neighAt]state.MAC, neighs), make(map[fdbAt]netip.Addr, neighs)
	e.add(t.Node.Host)
	for i := range t.Peers {
		e.add(t.Peers[i].Fragment.Host)
	}
}

// change adds and removes expected objects.
func (e *expected) change(more, gone state.Space) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, r := range gone.Routes {
		delete(e.routes, identify(r))
	}
	for _, n := range gone.Neighs {
		delete(e.neighs, neighAt{n.Link, n.IP})
	}
	for _, f := range gone.FDBs {
		delete(e.fdbs, fdbAt{f.Link, f.MAC})
	}
	e.add(more)
}

func (e *expected) add(s state.Space) {
	for _, l := range s.Links {
		e.links[l.Name] = true
	}
	for _, r := range s.Routes {
		e.routes[identify(r)] = true
	}
	for _, n := range s.Neighs {
		e.neighs[neighAt{n.Link, n.IP}] = n.MAC
	}
	for _, f := range s.FDBs {
		e.fdbs[fdbAt{f.Link, f.MAC}] = f.Dst
	}
}

// route reports whether a notification of a route is unexpected: an expected one is gone, or another one was added.
func (e *expected) route(s watch.Event) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return s.Gone == e.routes[routeID{s.Dst, s.Gw, s.Link, s.Metric}]
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
		var dst netip.Addr
		dst, wanted = e.fdbs[fdbAt{s.Link, s.MAC}]
		right = dst == s.Addr
	} else {
		var mac state.MAC
		mac, wanted = e.neighs[neighAt{s.Link, s.Addr}]
		right = mac == s.MAC
	}
	if !wanted {
		return s.Permanent && !s.Gone // added by another program
	}
	return s.Gone || !s.Permanent || !right
}
