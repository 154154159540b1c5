// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/kernel/link"
	"github.com/weft-net/weft/internal/kernel/rtnl"
	"github.com/weft-net/weft/internal/state"
)

// routeBatch is the routes that are missing or differ, those without a gateway before those whose gateway they lead to, and
// last the end of those that must not be there: a gateway was perhaps found through them. Only where a wanted one takes their
// place do they go before it.
// One of ours that differs is taken away first: replacing compares less than all that identifies a route.
func (v *view) routeBatch() ([]*rtnl.Message, error) {
	var batch []*rtnl.Message
	gone := map[*link.FoundRoute]bool{}
	for _, gateways := range []bool{false, true} {
		for _, want := range v.want.Routes {
			if want.Gw.IsValid() != gateways || want.Absent {
				continue
			}
			found, equal := v.hasRoute(want)
			if equal {
				continue
			}
			index, err := v.routeLink(want)
			if err != nil {
				return nil, err
			}
			inTheWay := v.inTheWay(want)
			if found != nil && !slices.Contains(inTheWay, found) {
				if !oursRoute(want, *found) {
					return nil, fmt.Errorf("%s: a route of protocol %d %w", want, found.Protocol, ErrForeign)
				}
				inTheWay = append(inTheWay, found)
			}
			for _, have := range inTheWay {
				batch = append(batch, link.DelRoute(have.Route, have.Index))
				gone[have] = true
			}
			batch = append(batch, link.AddRoute(want, index))
		}
	}
	for _, want := range v.want.Routes {
		if found, equal := v.hasRoute(want); want.Absent && !equal && !gone[found] {
			batch = append(batch, link.DelRoute(found.Route, found.Index))
		}
	}
	return batch, nil
}

// inTheWay are the routes that must not be there and have the place of a wanted one.
func (v *view) inTheWay(want state.Route) []*link.FoundRoute {
	var all []*link.FoundRoute
	n := link.Normal(want)
	for _, absent := range v.want.Routes {
		o := link.Normal(absent)
		if !absent.Absent || absent.Link != want.Link || o.Dst != n.Dst || o.Metric != n.Metric || o.Table != n.Table {
			continue
		}
		if found, equal := v.hasRoute(absent); !equal && !slices.Contains(all, found) {
			all = append(all, found)
		}
	}
	return all
}

func (v *view) routeLink(r state.Route) (int, error) {
	if r.Link == "" {
		return 0, nil
	}
	l, ok := v.links[r.Link]
	if !ok {
		return 0, fmt.Errorf("%s: link %s %w", r, r.Link, ErrMissing)
	}
	return l.Index, nil
}

func oursRoute(want state.Route, have link.FoundRoute) bool {
	return have.Protocol == link.Normal(want).Protocol
}

// place deals with routes that were refused because another has their destination, metric and table, over a link that
// was not looked at: one of ours makes place, another one's is an error.
func (v *view) place(ctx context.Context, refused error) error {
	if !errors.Is(refused, unix.EEXIST) {
		return refused
	}
	var batch []*rtnl.Message
	var errs []error
	all, err := v.elsewhere(ctx)
	if err != nil {
		return err
	}
	for _, want := range v.want.Routes {
		if _, equal := v.hasRoute(want); equal || want.Absent {
			continue
		}
		n := link.Normal(want)
		index, err := v.routeLink(want)
		if err != nil {
			return err
		}
		settled := false
		for _, have := range all[routePlace{n.Dst, n.Metric, n.Table}] {
			if want.Coexists {
				if have = only(n, have); have.Index != index || have.Gw != n.Gw {
					continue
				}
			}
			if (want.Link == "" || have.Index == index) && routeEqual(n, have) {
				settled = true
				break
			}
			if !oursRoute(want, have) {
				errs = append(errs, fmt.Errorf("%s: a route of protocol %d %w", want, have.Protocol, ErrForeign))
				settled = true
				break
			}
			batch = append(batch, link.DelRoute(have.Route, have.Index))
		}
		if !settled {
			batch = append(batch, link.AddRoute(want, index))
		}
	}
	errs = append(errs, notAboutRoutes(refused), v.conn.rtnl.Send(ctx, batch))
	return errors.Join(errs...)
}

// elsewhere is all routes of the tables and families in which something is missing.
func (v *view) elsewhere(ctx context.Context) (map[routePlace][]link.FoundRoute, error) {
	type question struct {
		family uint8
		table  uint32
	}
	asked, all := map[question]bool{}, map[routePlace][]link.FoundRoute{}
	for _, want := range v.want.Routes {
		q := question{familyOf(want), link.Normal(want).Table}
		if asked[q] {
			continue
		}
		if _, equal := v.hasRoute(want); equal || want.Absent {
			continue
		}
		asked[q] = true
		found, err := v.conn.routes(ctx, q.family, 0, q.table)
		if err != nil {
			return nil, err
		}
		for _, f := range found {
			at := routePlace{f.Dst, f.Metric, f.Table}
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
