// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"context"
	"errors"
	"maps"
	"net/netip"
	"reflect"
	"slices"

	"github.com/weft-net/weft/internal/kernel"
	"github.com/weft-net/weft/internal/plan/mesh"
	"github.com/weft-net/weft/internal/state"
)

// When facts change and the last pass succeeded, only the changes of the plan are applied: in a cluster of thousands of
// nodes single nodes come, go or change, and the others must not be read for each of these changes.

// step applies the fragments that differ from those in force, and removes what no new fragment has. It returns false
// if all fragments must be compared.
func (r *Reconciler) step(ctx context.Context, spaces kernel.Spaces, old mesh.Topology, status *Status) (bool, error) {
	t := &status.Topology
	add, gone := difference(old.Peers, t.Peers)
	changes, tables, same := changedElementsOf(old, *t)
	if !r.settled || !same ||
		!slices.EqualFunc(old.Underlay, t.Underlay, func(a, b mesh.Underlay) bool { return reflect.DeepEqual(a, b) }) {
		return false, nil
	}
	differenceLearned(&add, &gone, old.Learned, t.Learned)
	add.Host.Tables = append(add.Host.Tables, tables...)
	r.expect.change(add.Host, gone.Host)
	var err error
	if len(changes) > 0 {
		err = r.cfg.Host.Change(ctx, changes)
	}
	if err == nil && !(add.Host.Empty() && len(add.Effects) == 0) {
		err = spaces.Apply(ctx, add)
	}
	if err == nil {
		err = r.keep(ctx, *t)
	}
	if err == nil && !gone.Host.Empty() {
		err = spaces.Remove(ctx, gone)
	}
	if err != nil {
		return false, errors.Join(ctx.Err())
	}
	status.inForceAfter(r.Status())
	return true, nil
}

// changedElementsOf is changedTables for topologies of which usually both are bare: then the peers that differ have the
// elements that do.
func changedElementsOf(old, now mesh.Topology) (changes []state.TableChange, whole []state.Table, same bool) {
	changes, whole, same = changedTables(old.Node, now.Node)
	if old.IsBare() != now.IsBare() || len(whole) > 0 {
		return changedTables(old.Whole().Node, now.Whole().Node)
	}
	c := state.TableChange{Family: "inet", Name: mesh.GuardTable}
	were, are := map[string]state.Set{}, map[string]state.Set{}
	collect := func(into map[string]state.Set, sets []state.Set) {
		for _, s := range sets {
			s.Elements = append(into[s.Name].Elements, s.Elements...)
			into[s.Name] = s
		}
	}
	eachChanged(old.Peers, now.Peers, func(was, is *mesh.Peer) {
		if was != nil {
			collect(were, old.PeerElements(was))
		}
		if is != nil {
			collect(are, now.PeerElements(is))
		}
	})
	for _, name := range slices.Sorted(maps.Keys(were)) {
		s := were[name]
		if s.Elements, _ = changedElements(s.Elements, are[name].Elements); len(s.Elements) > 0 {
			c.DeleteElements = append(c.DeleteElements, s)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(are)) {
		s := are[name]
		if _, s.Elements = changedElements(were[name].Elements, s.Elements); len(s.Elements) > 0 {
			c.AddElements = append(c.AddElements, s)
		}
	}
	if len(c.AddElements)+len(c.DeleteElements) > 0 {
		changes = append(changes, c)
	}
	return changes, whole, same
}

// changedTables returns the changes of the tables of the node's part, which have elements for each peer, and the tables
// of which more than elements differs. It returns false if anything else of the part differs.
func changedTables(old, now state.Fragment) (changes []state.TableChange, whole []state.Table, same bool) {
	was, is := old.Host.Tables, now.Host.Tables
	if !slices.EqualFunc(was, is, func(a, b state.Table) bool { return a.Family == b.Family && a.Name == b.Name }) {
		return nil, nil, false
	}
	for i := range is {
		c, ok := tableChange(was[i], is[i])
		switch {
		case !ok && !reflect.DeepEqual(was[i], is[i]):
			whole = append(whole, is[i])
		case ok && len(c.AddElements)+len(c.DeleteElements) > 0:
			changes = append(changes, c)
		}
	}
	old.Host.Tables, now.Host.Tables = nil, nil
	return changes, whole, reflect.DeepEqual(old, now)
}

// unchanged returns how many peers at the begin and at the end of two lists are the same.
func unchanged(old, now []*mesh.Peer) (begin, end int) {
	most := min(len(old), len(now))
	for begin < most && old[begin] == now[begin] {
		begin++
	}
	for end < most-begin && old[len(old)-1-end] == now[len(now)-1-end] {
		end++
	}
	return begin, end
}

// difference returns new and changed parts of peers, and those that are gone. Both are sorted by name.
func difference(old, now []*mesh.Peer) (add, gone state.Fragment) {
	add.Owner, gone.Owner = "mesh/changed", "mesh/gone"
	eachChanged(old, now, func(was, is *mesh.Peer) {
		if was != nil && is != nil && sameFragment(was.Fragment(), is.Fragment()) {
			return
		}
		if is != nil {
			add.Merge(is.Fragment())
		}
		if was != nil {
			gone.Merge(state.Fragment{Host: was.Fragment().Host})
		}
	})
	gone.Host = without(gone.Host, add.Host)
	return add, gone
}

// eachChanged calls do for each peer that is not the same in memory, by name; was or is may be nil.
func eachChanged(old, now []*mesh.Peer, do func(was, is *mesh.Peer)) {
	from, end := unchanged(old, now)
	old, now = old[from:len(old)-end], now[from:len(now)-end]
	for len(old) > 0 || len(now) > 0 {
		switch {
		case len(now) == 0 || len(old) > 0 && old[0].Name < now[0].Name:
			do(old[0], nil)
			old = old[1:]
		case len(old) == 0 || now[0].Name < old[0].Name:
			do(nil, now[0])
			now = now[1:]
		default:
			if old[0] != now[0] {
				do(old[0], now[0])
			}
			old, now = old[1:], now[1:]
		}
	}
}

// differenceLearned adds the differences between learned routes. Routes to a destination with other gateways replace the
// earlier ones.
func differenceLearned(add, gone *state.Fragment, old, now []state.Fragment) {
	type place struct {
		dst  netip.Prefix
		link string
	}
	had, has := map[place]state.Route{}, map[place]bool{}
	for _, f := range old {
		for _, r := range f.Host.Routes {
			had[place{r.Dst, r.Link}] = r
		}
	}
	for _, f := range now {
		for _, r := range f.Host.Routes {
			at := place{r.Dst, r.Link}
			has[at] = true
			o, ok := had[at]
			if ok && reflect.DeepEqual(o, r) {
				continue
			}
			add.Host.Routes = append(add.Host.Routes, r)
			if ok && r.Dst.Addr().Is6() { // a next hop over another link may be a route of its own
				kept := r.Hops()
				for _, h := range o.Hops() {
					if !slices.Contains(kept, h) {
						gone.Host.Routes = append(gone.Host.Routes, o.Over(h))
					}
				}
			}
		}
	}
	for at, r := range had {
		if !has[at] {
			gone.Host.Routes = append(gone.Host.Routes, r)
		}
	}
}

// without returns the routes and tunnels of a space that another one does not have.
func without(s, other state.Space) state.Space {
	e := newExpected()
	e.add(other)
	out := state.Space{Links: s.Links, Rules: s.Rules}
	for _, r := range s.Routes {
		if !e.hasRoute(r) {
			out.Routes = append(out.Routes, r)
		}
	}
	for _, n := range s.Neighs {
		if !e.hasNeigh(n) {
			out.Neighs = append(out.Neighs, n)
		}
	}
	for _, f := range s.FDBs {
		if !e.hasFDB(f) {
			out.FDBs = append(out.FDBs, f)
		}
	}
	return out
}

// sameFragment is reflect.DeepEqual, but faster for typical peers.
func sameFragment(a, b state.Fragment) bool {
	if a.Owner != b.Owner || len(a.Host.Routes) != len(b.Host.Routes) || !slices.Equal(a.Host.Neighs, b.Host.Neighs) ||
		!slices.Equal(a.Host.FDBs, b.Host.FDBs) {
		return false
	}
	for i, r := range a.Host.Routes {
		if identify(r) != identify(b.Host.Routes[i]) {
			return false
		}
	}
	plain := func(f state.Fragment) bool {
		h := f.Host
		more := len(h.Links) + len(h.Addrs) + len(h.Rules) + len(h.Sysctls) + len(h.Tables) + len(h.Qdiscs) + len(h.Sources) +
			len(h.IPTables) + len(f.Effects)
		return more == 0 && !slices.ContainsFunc(h.Routes, func(r state.Route) bool {
			return r.Scope != nil || len(r.NextHops) > 0 || r.Src.IsValid() || r.MTU+r.AdvMSS > 0 || r.Type != 0 || r.Table != 0
		})
	}
	return plain(a) && plain(b) || reflect.DeepEqual(a, b)
}

// sameTopology is reflect.DeepEqual, but faster for many peers.
func sameTopology(a, b mesh.Topology) bool {
	if a.IsBare() != b.IsBare() {
		a, b = a.Whole(), b.Whole()
	}
	same := slices.EqualFunc(a.Peers, b.Peers, func(a, b *mesh.Peer) bool {
		return a == b || a.Name == b.Name && a.Backend == b.Backend && slices.Equal(a.Addrs, b.Addrs) &&
			slices.Equal(a.PodCIDRs, b.PodCIDRs) && slices.Equal(a.Blocks, b.Blocks) && sameFragment(a.Fragment(), b.Fragment())
	})
	a.Peers, b.Peers = nil, nil
	if same = same && slices.EqualFunc(a.Node.Host.Tables, b.Node.Host.Tables, sameTable); !same {
		return false
	}
	a.Node.Host.Tables, b.Node.Host.Tables = nil, nil
	return reflect.DeepEqual(a, b)
}

// sameTable is reflect.DeepEqual, which needs memory for each of thousands of elements.
func sameTable(a, b state.Table) bool {
	same := slices.EqualFunc(a.Sets, b.Sets, func(a, b state.Set) bool {
		if len(a.Elements) != len(b.Elements) {
			return false
		}
		for i := range a.Elements {
			if !sameElement(&a.Elements[i], &b.Elements[i]) {
				return false
			}
		}
		a.Elements, b.Elements = nil, nil
		return reflect.DeepEqual(a, b)
	})
	a.Sets, b.Sets = nil, nil
	return same && reflect.DeepEqual(a, b)
}
