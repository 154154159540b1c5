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

// routes are the routes that a space names, and those that were found where they can be: how routes are read, compared
// and written.
type routes struct {
	want   []state.Route
	links  *links
	reader *reader.Reader
	sock   *rtnl.Socket
	found  map[routePlace][]link.FoundRoute
}

// routePlace is what several routes can have in common.
type routePlace struct {
	dst    netip.Prefix
	metric uint32
	table  uint32
}

func placeOf(f link.FoundRoute) routePlace { return routePlace{f.Dst, f.Metric, f.Table} }

// read looks at the routes of each link, family and table that is named; at the whole table, where a route names no
// link.
func (t *routes) read(ctx context.Context) error {
	t.found = map[routePlace][]link.FoundRoute{}
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

// add adds to what is known.
func (t *routes) add(found []link.FoundRoute) {
	for _, f := range found {
		at := placeOf(f)
		t.found[at] = append(t.found[at], f)
	}
}

// ask asks for single routes; sure is false when the answers do not tell, and all must be read: another route hides
// the one that is looked for, or may do so.
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
			found = append(found, f)
		case ok && f.Table == table && f.Dst.Bits() < want.Dst.Bits(): // a wider one: the wanted one is not there
		default:
			sure = false
		}
	})
	return found, sure, err
}

// askable tells whether a route can be asked for: the kernel tells the best route to its first address, so one that has
// others beside it cannot. Nor can one of another table than the main one: the rules need not lead there, and that
// there is no way to the address says nothing of it then.
func askable(r state.Route) bool {
	main := r.Table == 0 || r.Table == unix.RT_TABLE_MAIN
	return main && r.Link != "" && r.Metric != 0 && !r.Absent && len(r.Beside) == 0 && r.Type == 0 && !r.Coexists
}

// has finds the route over the wanted link that has the place of want and tells whether it already equals it. Who
// made a route is compared only when the plan says it.
func (t *routes) has(want state.Route) (found *link.FoundRoute, equal bool) {
	if len(t.found) == 0 { // as where thousands are brought to a link that has none
		return nil, want.Absent
	}
	n := link.Normal(want)
	index := t.links.index(want.Link)
	there := t.found[routePlace{n.Dst, n.Metric, n.Table}]
	for i, have := range there {
		if want.Link != "" && have.Index != index {
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
		if routeEqual(n, have) && (want.Protocol == 0 || want.Protocol == have.Protocol) {
			return f, true
		}
		if want.Coexists && !oursRoute(want, have) {
			continue
		}
		found = f
	}
	return found, want.Absent
}

// wanted reports whether a route is there because the same plan asks for it. It may ask for one in the place of a route
// that it does not want, and for the same one.
func (t *routes) wanted(have link.FoundRoute) bool {
	return slices.ContainsFunc(t.want, func(o state.Route) bool {
		n := link.Normal(o)
		return !o.Absent && o.Link != "" && t.links.index(o.Link) == have.Index &&
			n.Dst == have.Dst && n.Metric == have.Metric && n.Table == have.Table && routeEqual(n, have)
	})
}

// only is the next hop of an IPv6 route that a wanted one has, without those beside it: they are routes of their own,
// which the kernel lists together.
func only(n state.Route, have link.FoundRoute) link.FoundRoute {
	if n.Dst.Addr().Is6() && slices.Contains(have.Beside, n.Gw) {
		have.Gw = n.Gw
	}
	if n.Dst.Addr().Is6() && have.Gw == n.Gw {
		have.Beside, have.Nexthops = nil, 1
	}
	return have
}

func routeEqual(n state.Route, have link.FoundRoute) bool {
	v4 := n.Dst.Addr().Is4()
	return have.Nexthops == 1+len(n.Beside) && have.Type == n.Type && sameGateways(n, have) &&
		(!n.Src.IsValid() || have.Src == n.Src) && (!v4 || *have.Scope == *n.Scope) &&
		have.MTU == n.MTU && have.AdvMSS == n.AdvMSS && (have.OnLink == n.OnLink || !v4)
}

// sameGateways compares next hops; the kernel may list several in any order.
func sameGateways(n state.Route, have link.FoundRoute) bool {
	if len(n.Beside) == 0 {
		return have.Gw == n.Gw
	}
	all := append([]netip.Addr{n.Gw}, n.Beside...)
	return slices.Contains(all, have.Gw) && !slices.ContainsFunc(have.Beside, func(gw netip.Addr) bool {
		return !slices.Contains(all, gw)
	})
}

// batch is the routes that are missing or differ, those without a gateway before those whose gateway they lead to, and
// last the end of those that must not be there: a gateway was perhaps found through them. Only where a wanted one takes
// their place do they go before it. One of ours that differs is taken away first: replacing compares less than all that
// identifies a route.
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
			inTheWay, err := t.inTheWay(want, found)
			if err != nil {
				return nil, err
			}
			for _, have := range inTheWay {
				batch = append(batch, link.DelRoute(have.Route, have.Index))
				gone[have] = true
			}
			batch = append(batch, link.AddRoute(want, index))
		}
	}
	for _, want := range t.want {
		if found, equal := t.has(want); want.Absent && !equal && !gone[found] {
			batch = append(batch, link.DelRoute(found.Route, found.Index))
		}
	}
	return batch, nil
}

// inTheWay are the routes that must not be there and have the place of a wanted one, and the one that was found in its
// place, if any; an error where that is not ours.
func (t *routes) inTheWay(want state.Route, found *link.FoundRoute) ([]*link.FoundRoute, error) {
	var all []*link.FoundRoute
	n := link.Normal(want)
	for _, absent := range t.want {
		o := link.Normal(absent)
		if !absent.Absent || absent.Link != want.Link || o.Dst != n.Dst || o.Metric != n.Metric || o.Table != n.Table {
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
	l, ok := t.links.get(r.Link)
	if !ok {
		return 0, fmt.Errorf("%s: link %s %w", r, r.Link, ErrMissing)
	}
	return l.Index, nil
}

func oursRoute(want state.Route, have link.FoundRoute) bool {
	return have.Protocol == link.Normal(want).Protocol
}

// makePlace deals with routes that were refused because another has their destination, metric and table, over a link
// that was not looked at: one of ours makes place, another one's is an error.
func (t *routes) makePlace(ctx context.Context, refused error) error {
	if !errors.Is(refused, unix.EEXIST) {
		return refused
	}
	var batch []*rtnl.Message
	var errs []error
	all, err := t.elsewhere(ctx)
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
		more, err := replace(want, index, all[routePlace{n.Dst, n.Metric, n.Table}])
		batch, errs = append(batch, more...), append(errs, err)
	}
	errs = append(errs, notAboutRoutes(refused), t.sock.Send(ctx, batch))
	return errors.Join(errs...)
}

// replace puts a route over the link of that index in the place of those that are there. Up to the first one that is
// equal to it, or not ours, which is an error, those that are there go.
func replace(want state.Route, index int, there []link.FoundRoute) ([]*rtnl.Message, error) {
	var batch []*rtnl.Message
	n := link.Normal(want)
	for _, have := range there {
		if want.Coexists {
			if have = only(n, have); have.Index != index || have.Gw != n.Gw {
				continue
			}
		}
		if (want.Link == "" || have.Index == index) && routeEqual(n, have) {
			return batch, nil
		}
		if !oursRoute(want, have) {
			return batch, fmt.Errorf("%s: a route of protocol %d %w", want, have.Protocol, ErrForeign)
		}
		batch = append(batch, link.DelRoute(have.Route, have.Index))
	}
	return append(batch, link.AddRoute(want, index)), nil
}

// elsewhere is all routes of the tables and families in which something is missing.
func (t *routes) elsewhere(ctx context.Context) (map[routePlace][]link.FoundRoute, error) {
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

// notAboutRoutes leaves of refusals what was not tried again.
func notAboutRoutes(err error) error {
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

// removal takes away those over links that stay, and those over no link.
func (t *routes) removal(stays func(link string) (index int, ok bool)) []*rtnl.Message {
	var batch []*rtnl.Message
	for _, want := range t.want {
		if index, ok := stays(want.Link); !want.Shared && !want.Absent && (ok || want.Link == "") {
			batch = append(batch, link.DelRoute(want, index))
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

func (t *routes) tell(out *state.Space) {
	for _, want := range t.want {
		if found, equal := t.has(want); equal {
			out.Routes = append(out.Routes, want)
		} else if found != nil {
			found.Link = want.Link
			out.Routes = append(out.Routes, found.Route)
		}
	}
}
