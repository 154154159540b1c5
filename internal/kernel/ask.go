// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"context"
	"errors"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/kernel/link"
	"github.com/weft-net/weft/internal/kernel/rtnl"
	"github.com/weft-net/weft/internal/state"
)

// A node of a large cluster has thousands of routes, neighbours and forwarding entries on one device. To look for few of
// them the kernel is asked for each; to look for many it tells the device's whole table in one dump.

// few is how many are asked for one by one.
const few = 16

// askRoutes asks for single routes; sure is false when the answers do not tell, and all must be read: another route hides
// the one that is looked for, or may do so.
func (v *view) askRoutes(ctx context.Context, wants []state.Route, table uint32) (found []link.FoundRoute, sure bool, err error) {
	batch := make([]*rtnl.Message, 0, len(wants))
	for _, w := range wants {
		batch = append(batch, link.RouteOf(w.Dst))
	}
	sure = true
	err = v.conn.rtnl.Ask(ctx, batch, func(i int, body []byte) {
		f, ok := link.DecodeRoute(body)
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
// others beside it cannot. Nor can one of another table than the main one: the rules need not lead there, and that there is no way
// to the address says nothing of it then.
func askable(r state.Route) bool {
	main := r.Table == 0 || r.Table == unix.RT_TABLE_MAIN
	return main && r.Link != "" && r.Metric != 0 && !r.Absent && len(r.Beside) == 0 && r.Type == 0 && !r.Coexists
}

// askFDBs asks for single entries of one device; sure is false where the kernel cannot be asked.
func (v *view) askFDBs(ctx context.Context, wants []state.FDB, index int) (found []link.FoundFDB, sure bool, err error) {
	batch := make([]*rtnl.Message, 0, len(wants))
	for _, w := range wants {
		batch = append(batch, link.GetFDB(w, index))
	}
	err = v.conn.rtnl.Ask(ctx, batch, func(_ int, body []byte) {
		if f, ok := link.DecodeFDB(body); ok && f.Index == index {
			found = append(found, f)
		}
	})
	var refused rtnl.Refusals
	if errors.As(err, &refused) { // before Linux 5.0
		return nil, false, nil
	}
	return found, err == nil, err
}

// readNeighs looks at the neighbours, those of each device together.
func (v *view) readNeighs(ctx context.Context) error {
	v.neighs = map[neighPlace]link.FoundNeigh{}
	wants := map[string][]state.Neigh{}
	var order []string
	for _, n := range v.want.Neighs {
		if _, ok := v.old(n.Link); !ok {
			continue
		}
		if wants[n.Link] == nil {
			order = append(order, n.Link)
		}
		wants[n.Link] = append(wants[n.Link], n)
	}
	take := func(body []byte) {
		if f, ok := link.DecodeNeigh(body); ok {
			v.neighs[neighPlace{f.Index, f.IP, f.Proxy}] = f
		}
	}
	for _, name := range order {
		index := v.links[name].Index
		if len(wants[name]) > few {
			for _, proxy := range []bool{false, true} {
				if !slices.ContainsFunc(wants[name], func(n state.Neigh) bool { return n.Proxy == proxy }) {
					continue
				}
				if err := v.conn.rtnl.Dump(ctx, whole(link.ListNeighs(index, proxy), 0), take); err != nil {
					return err
				}
			}
			continue
		}
		batch := make([]*rtnl.Message, 0, len(wants[name]))
		for _, n := range wants[name] {
			batch = append(batch, link.GetNeigh(n, index))
		}
		if err := v.conn.rtnl.Ask(ctx, batch, func(_ int, body []byte) { take(body) }); err != nil {
			return err
		}
	}
	return nil
}

// neighPlace is where one neighbour entry can be.
type neighPlace struct {
	index int
	ip    netip.Addr
	proxy bool
}

// routePlace is what several routes can have in common.
type routePlace struct {
	dst    netip.Prefix
	metric uint32
	table  uint32
}

// addRoutes adds to what is known.
func (v *view) addRoutes(found []link.FoundRoute) {
	for _, f := range found {
		at := routePlace{f.Dst, f.Metric, f.Table}
		v.routes[at] = append(v.routes[at], f)
	}
}

// readRoutes looks at the routes of each link, family and table that is named; at the whole table, where a route names no
// link.
func (v *view) readRoutes(ctx context.Context) error {
	v.routes = map[routePlace][]link.FoundRoute{}
	type question struct {
		family uint8
		index  int
		table  uint32
	}
	count, single := map[question]int{}, map[question]bool{}
	var order []question
	ask := func(r state.Route) (q question, ok bool) {
		f, ok := v.old(r.Link)
		table := r.Table
		if table == 0 {
			table = unix.RT_TABLE_MAIN
		}
		return question{family: familyOf(r), index: f.Index, table: table}, ok || r.Link == ""
	}
	for i := range v.want.Routes { // there may be thousands
		q, ok := ask(v.want.Routes[i])
		if !ok {
			continue
		}
		if count[q] == 0 {
			order, single[q] = append(order, q), true
		}
		count[q]++
		single[q] = single[q] && askable(v.want.Routes[i]) && count[q] <= few
	}
	for _, q := range order {
		if single[q] {
			wants := slices.DeleteFunc(slices.Clone(v.want.Routes), func(r state.Route) bool { at, ok := ask(r); return !ok || at != q })
			found, sure, err := v.askRoutes(ctx, wants, q.table)
			if err != nil {
				return err
			}
			if sure {
				v.addRoutes(found)
				continue
			}
		}
		found, err := v.conn.routes(ctx, q.family, q.index, q.table)
		if err != nil {
			return err
		}
		v.addRoutes(found)
	}
	return nil
}
