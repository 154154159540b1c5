// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/kernel/link"
	"github.com/weft-net/weft/internal/kernel/rtnl"
	"github.com/weft-net/weft/internal/state"
)

// routeBatch is the routes that are missing or differ, those without a gateway before those whose gateway they lead to, and
// last the end of those that must not be there: a gateway was perhaps found through them.
// One of ours that differs is taken away first: replacing compares less than all that identifies a route.
func (v *view) routeBatch() ([]*rtnl.Message, error) {
	var batch []*rtnl.Message
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
			if found != nil {
				if !oursRoute(want, *found) {
					return nil, fmt.Errorf("%s: a route of protocol %d %w", want, found.Protocol, ErrForeign)
				}
				batch = append(batch, link.DelRoute(found.Route, found.Index))
			}
			batch = append(batch, link.AddRoute(want, index))
		}
	}
	for _, want := range v.want.Routes {
		if found, equal := v.hasRoute(want); want.Absent && !equal {
			batch = append(batch, link.DelRoute(found.Route, found.Index))
		}
	}
	return batch, nil
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
	for _, want := range v.want.Routes {
		if _, equal := v.hasRoute(want); equal || want.Absent {
			continue
		}
		n := link.Normal(want)
		index, err := v.routeLink(want)
		if err != nil {
			return err
		}
		all, err := v.conn.routes(ctx, familyOf(want), 0, n.Table)
		if err != nil {
			return err
		}
		settled := false
		for _, have := range all {
			if have.Dst != n.Dst || have.Metric != n.Metric {
				continue
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
