// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"context"
	"errors"
	"slices"

	"github.com/weft-net/weft/internal/kernel/rtnl"
	"github.com/weft-net/weft/internal/kernel/sysctl"
	"github.com/weft-net/weft/internal/state"
)

// Restore applies the parts of f whose links and namespaces still exist. It makes no links.
func (s Spaces) Restore(ctx context.Context, f state.Fragment) error {
	for _, name := range []state.SpaceName{state.Host, state.Pod} {
		space := f.Space(name)
		if space.Empty() {
			continue
		}
		c := s.conn(name)
		if c == nil {
			*space = state.Space{}
			continue
		}
		links, err := c.reader.LinksByName(ctx, linkNames(*space))
		if err != nil {
			return in(name, err)
		}
		*space = existing(*space, func(link string) bool {
			l, ok := links[link]
			return ok && !l.Dead()
		})
	}
	routes := map[state.SpaceName][]state.Route{state.Host: f.Host.Routes, state.Pod: f.Pod.Routes}
	f.Host.Routes, f.Pod.Routes = nil, nil
	var errs []error
	if !f.Host.Empty() || !f.Pod.Empty() {
		errs = append(errs, s.Apply(ctx, f))
	}
	// One by one: a conflicting route, or a missing gateway, is no reason to leave out the other routes, nor to retry
	// forever.
	for _, gateways := range []bool{false, true} {
		for name, list := range routes {
			for _, r := range list {
				if r.Gw.IsValid() != gateways {
					continue
				}
				one := state.Fragment{Owner: f.Owner}
				one.Space(name).Routes = []state.Route{r}
				var refused rtnl.Refusals
				if err := s.Apply(ctx, one); !errors.Is(err, ErrForeign) && !errors.As(err, &refused) {
					errs = append(errs, err)
				}
			}
		}
	}
	return errors.Join(errs...)
}

// existing returns the objects of a space that are on existing links, or on none.
func existing(s state.Space, there func(link string) bool) state.Space {
	gone := func(link string) bool { return link != "" && !there(link) }
	s.Links = slices.DeleteFunc(slices.Clone(s.Links), func(l state.Link) bool { return gone(l.Name) })
	for i := range s.Links {
		if gone(s.Links[i].Master) {
			s.Links[i].Master = ""
		}
	}
	s.Addrs = slices.DeleteFunc(slices.Clone(s.Addrs), func(a state.Addr) bool { return gone(a.Link) })
	s.Routes = slices.DeleteFunc(slices.Clone(s.Routes), func(r state.Route) bool { return gone(r.Link) })
	s.Neighs = slices.DeleteFunc(slices.Clone(s.Neighs), func(n state.Neigh) bool { return gone(n.Link) })
	s.FDBs = slices.DeleteFunc(slices.Clone(s.FDBs), func(e state.FDB) bool { return gone(e.Link) })
	s.Joins = slices.DeleteFunc(slices.Clone(s.Joins), func(j state.Join) bool { return gone(j.Tap) || gone(j.Link) })
	s.Sysctls = slices.DeleteFunc(slices.Clone(s.Sysctls), func(s state.Sysctl) bool {
		c, ok := sysctl.Of(s.Name)
		return ok && gone(c.Link)
	})
	return s
}
