// SPDX-License-Identifier: Apache-2.0

package nodebgp

import (
	"cmp"
	"context"
	"maps"
	"net/netip"
	"slices"
	"sort"
	"strings"
	"sync"

	"github.com/weft-net/weft/internal/kernel/lookup"
	"github.com/weft-net/weft/internal/plan/bgp"
	"github.com/weft-net/weft/internal/plan/mesh"
	"github.com/weft-net/weft/internal/state"
)

// hop is where the kernel sends packets to a next hop: directly to it, or to the gateway of the route to it. A link that
// is empty: it cannot be reached.
type hop struct {
	gateway netip.Addr
	link    string
}

// resolver resolves next hops over the node's routes, and knows the answers of the last time.
type resolver struct {
	mu   sync.Mutex
	ns   *lookup.Namespace
	last map[netip.Addr]hop
}

func newResolver() *resolver { return &resolver{last: map[netip.Addr]hop{}} }

func (r *resolver) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ns != nil {
		_ = r.ns.Close()
		r.ns = nil
	}
}

// resolve asks the kernel again for all next hops.
func (r *resolver) resolve(ctx context.Context, all map[netip.Addr]bool) map[netip.Addr]hop {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := make(map[netip.Addr]hop, len(all))
	for a := range all {
		now[a] = r.askLocked(ctx, a)
	}
	r.last = now
	return maps.Clone(now)
}

// changed reports whether a next hop is reached in another way than the last time.
func (r *resolver) changed(ctx context.Context) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for a, was := range r.last {
		if r.askLocked(ctx, a) != was {
			return true
		}
	}
	return false
}

// askLocked asks the kernel for a next hop. If the question fails, the last answer stays: routes must not be deleted because
// of that.
func (r *resolver) askLocked(ctx context.Context, a netip.Addr) hop {
	if r.ns == nil {
		var err error
		if r.ns, err = lookup.Open(nil); err != nil {
			return r.last[a]
		}
	}
	if link := a.Zone(); link != "" { // a neighbor on that link
		status, err := r.ns.Link(ctx, link)
		switch {
		case err != nil:
			_ = r.ns.Close()
			r.ns = nil
			return r.last[a]
		case status == nil || !status.Up || !status.Carrier:
			return hop{}
		}
		return hop{a.WithZone(""), link}
	}
	found, err := r.ns.Route(ctx, lookup.Packet{To: a})
	switch {
	case err != nil:
		_ = r.ns.Close() // the next question is asked by another socket
		r.ns = nil
		return r.last[a]
	case found.Errno != "" || found.Type != "unicast" || found.Out == "lo":
		return hop{}
	case found.Gateway.IsValid():
		return hop{found.Gateway, found.Out}
	}
	return hop{a, found.Out}
}

// Learned returns the learned routes, one fragment for each peer, sorted by owner, and whether they are known: if not,
// those of an earlier agent stay.
func (n *Node) Learned() ([]state.Fragment, bool) {
	n.mu.Lock()
	routes, known := n.routesLocked(), n.knownLocked()
	n.mu.Unlock()
	hops := map[netip.Addr]bool{}
	for _, r := range routes {
		for _, p := range r.Paths {
			hops[p.NextHop] = true
		}
	}
	byOwner := map[string]*state.Fragment{}
	resolved := n.hops.resolve(context.Background(), hops)
	for _, r := range sorted(routes) {
		route, peer, ok := kernelRoute(r, resolved)
		if !ok {
			continue
		}
		owner := mesh.OwnerBGP + peer.String()
		if byOwner[owner] == nil {
			byOwner[owner] = &state.Fragment{Owner: owner}
		}
		f := byOwner[owner]
		f.Host.Routes = append(f.Host.Routes, route)
	}
	var out []state.Fragment
	for _, owner := range slices.Sorted(maps.Keys(byOwner)) {
		out = append(out, *byOwner[owner])
	}
	return out, known
}

// kernelRoute returns the route over all paths whose next hops can be reached, in the order of their links and gateways, so
// that another best path changes nothing, and the peer of the first. It is false if none can be.
func kernelRoute(r bgp.Route, resolved map[netip.Addr]hop) (route state.Route, peer netip.Addr, ok bool) {
	type way struct {
		hop
		peer netip.Addr
	}
	var ways []way
	for _, p := range r.Paths {
		h := resolved[p.NextHop]
		if h.link != "" && !slices.ContainsFunc(ways, func(w way) bool { return w.hop == h }) {
			ways = append(ways, way{h, p.Peer})
		}
	}
	if len(ways) == 0 {
		return state.Route{}, netip.Addr{}, false
	}
	slices.SortFunc(ways, func(a, b way) int {
		return cmp.Or(strings.Compare(a.link, b.link), a.gateway.Compare(b.gateway))
	})
	first := ways[0]
	route = mesh.LearnedRoute(r.Prefix, first.link)
	route.Gw = first.gateway
	for _, w := range ways[1:] {
		next := state.NextHop{Gw: w.gateway}
		if w.link != first.link {
			next.Link = w.link
		}
		route.NextHops = append(route.NextHops, next)
	}
	return route, first.peer, true
}

// sorted returns the routes sorted by prefix. Package slices would need a sort of its own for the type in the agent.
func sorted(all map[netip.Prefix]bgp.Route) []bgp.Route {
	out := make([]bgp.Route, 0, len(all))
	for _, r := range all {
		out = append(out, r)
	}
	sort.Slice(out, func(i, j int) bool {
		a, b := out[i].Prefix, out[j].Prefix
		if c := a.Addr().Compare(b.Addr()); c != 0 {
			return c < 0
		}
		return a.Bits() < b.Bits()
	})
	return out
}
