// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/kernel/link"
	"github.com/weft-net/weft/internal/kernel/reader"
	"github.com/weft-net/weft/internal/kernel/rtnl"
	"github.com/weft-net/weft/internal/state"
)

// routes are the routes that a space names, and the existing ones in their places.
type routes struct {
	want   []state.Route
	links  *links
	reader *reader.Reader
	sock   *rtnl.Socket
	found  map[routePlace][]link.FoundRoute
	// sharing are the wanted routes by place if some are to be absent, and nil otherwise: see share.
	sharing map[routePlace][]state.Route
}

// routePlace is what identifies a route to the kernel; several can share it.
type routePlace struct {
	dst    netip.Prefix
	metric uint32
	table  uint32
}

func placeOf(f link.FoundRoute) routePlace { return routePlace{f.Dst, f.Metric, f.Table} }

// read reads the routes of each link, family and table that the space names; the whole table, when a route names no
// link.
func (t *routes) read(ctx context.Context) error {
	t.found, t.sharing = map[routePlace][]link.FoundRoute{}, nil
	type question struct {
		family uint8
		index  int
		table  uint32
	}
	count, single := map[question]int{}, map[question]bool{}
	var order []question
	ask := func(r state.Route) (q question, ok bool) {
		f, ok := t.links.old(r.Link)
		table := r.Table
		if table == 0 {
			table = unix.RT_TABLE_MAIN
		}
		return question{family: familyOf(r), index: f.Index, table: table}, ok || r.Link == ""
	}
	for i := range t.want { // there may be thousands
		q, ok := ask(t.want[i])
		if !ok {
			continue
		}
		if count[q] == 0 {
			order, single[q] = append(order, q), true
		}
		count[q]++
		single[q] = single[q] && askable(t.want[i]) && count[q] <= few
	}
	for _, q := range order {
		if single[q] {
			wants := slices.DeleteFunc(slices.Clone(t.want), func(r state.Route) bool {
				at, ok := ask(r)
				return !ok || at != q
			})
			found, sure, err := t.ask(ctx, wants, q.table)
			if err != nil {
				return err
			}
			if sure {
				t.add(found)
				continue
			}
		}
		found, err := t.reader.Routes(ctx, q.family, q.index, q.table)
		if err != nil {
			return err
		}
		t.add(found)
	}
	return nil
}

// add adds routes to those found.
func (t *routes) add(found []link.FoundRoute) {
	for _, f := range found {
		at := placeOf(f)
		t.found[at] = append(t.found[at], f)
	}
}

// ask reads single routes; sure is false when the answers are not conclusive, and all must be read: another route hides
// the wanted one, or may do so.
func (t *routes) ask(
	ctx context.Context, wants []state.Route, table uint32,
) (found []link.FoundRoute, sure bool, err error) {
	dsts := make([]netip.Prefix, 0, len(wants))
	for _, w := range wants {
		dsts = append(dsts, w.Dst)
	}
	sure = true
	err = t.reader.BestRoutes(ctx, dsts, func(i int, f link.FoundRoute, ok bool) {
		want := link.Normal(wants[i])
		switch {
		case ok && f.Table == table && f.Dst == want.Dst && f.Metric == want.Metric:
			found = append(found, f.ByLink()...)
		case ok && f.Table == table && f.Dst.Bits() < want.Dst.Bits(): // a wider one: the wanted one does not exist
		default:
			sure = false
		}
	})
	return found, sure, err
}

// askable reports whether a route can be read by itself: the kernel returns the best route to the prefix's first
// address, so a route with several next hops cannot. Nor can one of another table than main: the rules may not lead
// there, and no route to the address proves nothing then.
func askable(r state.Route) bool {
	main := r.Table == 0 || r.Table == unix.RT_TABLE_MAIN
	return main && r.Link != "" && r.Metric != 0 && !r.Absent && len(r.NextHops) == 0 && r.Type == 0 && !r.Coexists
}

// has returns the route over the wanted link in the place of want and reports whether it equals it. The protocol is
// compared only if the plan sets it.
func (t *routes) has(want state.Route) (found *link.FoundRoute, equal bool) {
	if len(t.found) == 0 { // when thousands of routes are added to a link without any
		return nil, want.Absent
	}
	n := link.Normal(want)
	index := t.links.index(want.Link)
	there, hops := t.found[routePlace{n.Dst, n.Metric, n.Table}], t.hops(want)
	for i, have := range there {
		if want.Link != "" && !uses(have, index) {
			continue
		}
		f := &there[i]
		if want.Absent {
			if have.Gw == n.Gw && !t.wanted(have) {
				return f, false
			}
			continue
		}
		if want.Coexists {
			one := only(n, have)
			if have, f = one, &one; have.Gw != n.Gw {
				continue
			}
		}
		if routeEqual(n, hops, have) && (want.Protocol == 0 || want.Protocol == have.Protocol) {
			return f, true
		}
		if want.Coexists && !oursRoute(want, have) {
			continue
		}
		found = f
	}
	return found, want.Absent
}

// uses reports whether a route has a next hop over a link. Those of an IPv6 route over other links are routes of their own.
func uses(have link.FoundRoute, index int) bool {
	return have.Index == index || have.Dst.Addr().Is4() &&
		slices.ContainsFunc(have.Hops(), func(h link.Hop) bool { return h.Index == index })
}

// share returns the wanted routes in the place of a normal one, if some of the plan are to be absent. Of thousands of
// routes usually none is.
func (t *routes) share(n state.Route) []state.Route {
	if t.sharing == nil {
		t.sharing = map[routePlace][]state.Route{}
		if slices.ContainsFunc(t.want, func(r state.Route) bool { return r.Absent }) {
			for _, r := range t.want {
				o := link.Normal(r)
				at := routePlace{o.Dst, o.Metric, o.Table}
				t.sharing[at] = append(t.sharing[at], r)
			}
		}
	}
	return t.sharing[routePlace{n.Dst, n.Metric, n.Table}]
}

// wanted reports whether the same plan asks for a route. It may want one route to be absent, and an equal one to exist.
func (t *routes) wanted(have link.FoundRoute) bool {
	return slices.ContainsFunc(t.share(have.Route), func(o state.Route) bool {
		n := link.Normal(o)
		return !o.Absent && o.Link != "" && t.links.index(o.Link) == have.Index &&
			n.Dst == have.Dst && n.Metric == have.Metric && n.Table == have.Table && routeEqual(n, t.hops(o), have)
	})
}

// only returns the next hop of an IPv6 route that the wanted one has, without the others: they are routes of their own,
// which the kernel lists together.
func only(n state.Route, have link.FoundRoute) link.FoundRoute {
	if n.Dst.Addr().Is6() && slices.Contains(have.NextHops, state.NextHop{Gw: n.Gw}) {
		have.Gw = n.Gw
	}
	if n.Dst.Addr().Is6() && have.Gw == n.Gw {
		have.NextHops, have.Nexthops = nil, 1
	}
	return have
}

// routeEqual compares a route, with its next hops if it has several, with one that was found.
func routeEqual(n state.Route, hops []link.Hop, have link.FoundRoute) bool {
	v4 := n.Dst.Addr().Is4()
	return have.Type == n.Type && sameHops(n, hops, have) &&
		(!n.Src.IsValid() || have.Src == n.Src) && (!v4 || *have.Scope == *n.Scope) &&
		have.MTU == n.MTU && have.AdvMSS == n.AdvMSS && (have.OnLink == n.OnLink || !v4)
}

// sameHops compares next hops; the kernel may list several in any order. One over another link than the wanted one's is a
// route of another owner.
func sameHops(n state.Route, hops []link.Hop, have link.FoundRoute) bool {
	if len(hops) == 0 {
		return have.Nexthops == 1 && have.Gw == n.Gw
	}
	there := have.Hops()
	if !slices.ContainsFunc(hops, func(h link.Hop) bool { return h.Index != hops[0].Index }) && len(there) != have.Nexthops {
		there = slices.DeleteFunc(slices.Clone(there), func(h link.Hop) bool { return h.Index != have.Index })
	}
	return len(there) == len(hops) && !slices.ContainsFunc(there, func(h link.Hop) bool { return !slices.Contains(hops, h) })
}

// batch returns the requests for routes that are missing or differ: first those without a gateway, then those whose
// gateway they lead to, and last the deletion of absent ones, which a gateway may have needed. An absent route is
// deleted earlier only when a wanted one takes its place. A differing route of ours is deleted first: the kernel's
// replace does not compare everything that identifies a route.
func (t *routes) batch() ([]*rtnl.Message, error) {
	var batch []*rtnl.Message
	gone := map[*link.FoundRoute]bool{}
	for _, gateways := range []bool{false, true} {
		for _, want := range t.want {
			if want.Gw.IsValid() != gateways || want.Absent {
				continue
			}
			found, equal := t.has(want)
			if equal {
				continue
			}
			index, err := t.linkIndex(want)
			if err != nil {
				return nil, err
			}
			inTheWay, err := t.conflicting(want, found)
			if err != nil {
				return nil, err
			}
			for _, have := range inTheWay {
				gone[have] = true
			}
			if len(inTheWay) == 1 && replaceable(want, *inTheWay[0]) {
				batch = append(batch, link.ReplaceRoute(want, index, t.hops(want)...))
				continue
			}
			for _, have := range inTheWay {
				batch = append(batch, have.Delete())
			}
			batch = append(batch, link.AddRoute(want, index, t.hops(want)...))
		}
	}
	for _, want := range t.want {
		if found, equal := t.has(want); want.Absent && !equal && !gone[found] {
			batch = append(batch, found.Delete())
		}
	}
	return batch, nil
}

// conflicting returns the absent routes in the place of a wanted one, and the one found in its place, if any; an error
// when that is not ours.
func (t *routes) conflicting(want state.Route, found *link.FoundRoute) ([]*link.FoundRoute, error) {
	var all []*link.FoundRoute
	for _, absent := range t.share(link.Normal(want)) {
		if !absent.Absent || absent.Link != want.Link {
			continue
		}
		if found, equal := t.has(absent); !equal && !slices.Contains(all, found) {
			all = append(all, found)
		}
	}
	if found == nil || slices.Contains(all, found) {
		return all, nil
	}
	if !oursRoute(want, *found) {
		return nil, fmt.Errorf("%s: a route of protocol %d %w", want, found.Protocol, ErrForeign)
	}
	return append(all, found), nil
}

func (t *routes) linkIndex(r state.Route) (int, error) {
	if r.Link == "" {
		return 0, nil
	}
	for _, h := range r.Hops() {
		if _, ok := t.links.get(h.Link); !ok {
			return 0, fmt.Errorf("%s: link %s %w", r, h.Link, ErrMissing)
		}
	}
	return t.links.index(r.Link), nil
}

// hops returns the next hops of a route with several, and nil for another one.
func (t *routes) hops(r state.Route) []link.Hop {
	if len(r.NextHops) == 0 {
		return nil
	}
	var out []link.Hop
	for _, h := range r.Hops() {
		out = append(out, link.Hop{Index: t.links.index(h.Link), Gw: h.Gw})
	}
	return out
}

// replaceable reports whether the kernel can put a wanted route in the place of another one, so that no packet is lost
// between the two. It compares the destination, the metric and the table only, so the plan must have made those its own: by
// a protocol number and a metric.
func replaceable(want state.Route, have link.FoundRoute) bool {
	return want.Protocol != 0 && want.Metric != 0 && !want.Coexists && want.Gw.IsValid() && have.Gw.IsValid() &&
		have.Type == link.Normal(want).Type
}

func oursRoute(want state.Route, have link.FoundRoute) bool {
	return have.Protocol == link.Normal(want).Protocol
}

// resolveConflicts handles routes that were refused because another one has their destination, metric and table over a link
// that was not read: one of ours is deleted, another owner's is an error.
func (t *routes) resolveConflicts(ctx context.Context, refused error) error {
	if !errors.Is(refused, unix.EEXIST) {
		return refused
	}
	var batch []*rtnl.Message
	var errs []error
	all, err := t.allInTables(ctx)
	if err != nil {
		return err
	}
	for _, want := range t.want {
		if _, equal := t.has(want); equal || want.Absent {
			continue
		}
		index, err := t.linkIndex(want)
		if err != nil {
			return err
		}
		n := link.Normal(want)
		more, err := replace(want, index, t.hops(want), all[routePlace{n.Dst, n.Metric, n.Table}])
		batch, errs = append(batch, more...), append(errs, err)
	}
	errs = append(errs, otherRefusals(refused), t.sock.Send(ctx, batch))
	return errors.Join(errs...)
}

// replace replaces existing routes by the wanted one over the link of that index: one that the kernel can replace at once,
// others by deleting them up to the first one that is equal, or not ours, which is an error.
func replace(want state.Route, index int, hops []link.Hop, there []link.FoundRoute) ([]*rtnl.Message, error) {
	var batch []*rtnl.Message
	n := link.Normal(want)
	for _, have := range there {
		if want.Coexists {
			if have = only(n, have); have.Index != index || have.Gw != n.Gw {
				continue
			}
		}
		if (want.Link == "" || have.Index == index) && routeEqual(n, hops, have) {
			return batch, nil
		}
		if !oursRoute(want, have) {
			return batch, fmt.Errorf("%s: a route of protocol %d %w", want, have.Protocol, ErrForeign)
		}
		// The kernel refuses an onlink gateway of IPv6 that it would reach over another link by the route in the way.
		if onlink6 := want.OnLink && want.Gw.Is6(); len(there) == 1 && replaceable(want, have) && !onlink6 {
			return append(batch, link.ReplaceRoute(want, index, hops...)), nil
		}
		batch = append(batch, have.Delete())
	}
	return append(batch, link.AddRoute(want, index, hops...)), nil
}

// allInTables returns all routes of the tables and families in which a wanted one is missing.
func (t *routes) allInTables(ctx context.Context) (map[routePlace][]link.FoundRoute, error) {
	type question struct {
		family uint8
		table  uint32
	}
	asked, all := map[question]bool{}, map[routePlace][]link.FoundRoute{}
	for _, want := range t.want {
		q := question{familyOf(want), link.Normal(want).Table}
		if asked[q] {
			continue
		}
		if _, equal := t.has(want); equal || want.Absent {
			continue
		}
		asked[q] = true
		found, err := t.reader.Routes(ctx, q.family, 0, q.table)
		if err != nil {
			return nil, err
		}
		for _, f := range found {
			at := placeOf(f)
			all[at] = append(all[at], f)
		}
	}
	return all, nil
}

func familyOf(r state.Route) uint8 {
	if r.Dst.Addr().Is6() {
		return unix.AF_INET6
	}
	return unix.AF_INET
}

// otherRefusals returns the refusals that were not retried.
func otherRefusals(err error) error {
	var refused, rest rtnl.Refusals
	if !errors.As(err, &refused) {
		return err
	}
	for _, r := range refused {
		if r.Type != unix.RTM_NEWROUTE {
			rest = append(rest, r)
		}
	}
	if len(rest) == 0 {
		return nil
	}
	return rest
}

// removal deletes the routes over links that stay, and those over no link. Of a route with several next hops it deletes
// those over links that stay.
func (t *routes) removal(stays func(link string) (index int, ok bool)) []*rtnl.Message {
	var batch []*rtnl.Message
	for _, want := range t.want {
		if want.Shared || want.Absent {
			continue
		}
		if want.Link == "" {
			batch = append(batch, link.DelRoute(want, 0))
			continue
		}
		var hops []link.Hop
		for _, h := range want.Hops() {
			if index, ok := stays(h.Link); ok {
				hops = append(hops, link.Hop{Index: index, Gw: h.Gw})
			}
		}
		if len(hops) > 0 {
			want.Gw = hops[0].Gw
			batch = append(batch, link.DelRoute(want, hops[0].Index, hops...))
		}
	}
	return batch
}

func (t *routes) diff(out *diffs) {
	for _, want := range t.want {
		if found, equal := t.has(want); !equal {
			have := ""
			if found != nil {
				found.Link = want.Link
				have = found.String()
			}
			out.add(want, have)
		}
	}
}

func (t *routes) report(out *state.Space) {
	for _, want := range t.want {
		if found, equal := t.has(want); equal {
			out.Routes = append(out.Routes, want)
		} else if found != nil {
			found.Link = want.Link
			out.Routes = append(out.Routes, found.Route)
		}
	}
}
