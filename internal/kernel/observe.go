// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"context"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/kernel/interim/link"
	"github.com/weft-net/weft/internal/kernel/interim/sysctl"
	"github.com/weft-net/weft/internal/state"
)

// Observe answers a planner's queries. A space without namespace answers that nothing is found.
func (s Spaces) Observe(ctx context.Context, queries []state.Query) (state.Answers, error) {
	out := make(state.Answers, len(queries))
	for _, q := range queries {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		c := s.conn(q.Space)
		if c == nil {
			out[q] = state.Answer{}
			continue
		}
		a, err := c.answer(q)
		if err != nil {
			return nil, err
		}
		out[q] = a
	}
	return out, nil
}

func (c *Conn) answer(q state.Query) (state.Answer, error) {
	switch {
	case q.Link != "":
		return c.answerLink(q.Link)
	case q.DefaultLink != "":
		return c.answerDefault(q.DefaultLink == "6")
	case q.LinkOf.IsValid():
		return c.answerLinkOf(q.LinkOf)
	case q.Routes != "":
		return c.answerRoutes(q.Routes)
	}
	values, err := sysctl.Read(c.ns, []string{q.Sysctl})
	v := values[q.Sysctl]
	return state.Answer{Found: err == nil && !v.Missing, Value: v.Text}, err
}

func (c *Conn) answerLink(name string) (state.Answer, error) {
	links, err := c.linksByName([]string{name})
	if err != nil {
		return state.Answer{}, err
	}
	f, ok := links[name]
	if !ok {
		return state.Answer{}, nil
	}
	return c.describe(f)
}

// describe is a link with its master's name and its addresses.
func (c *Conn) describe(f link.Found) (state.Answer, error) {
	a := state.Answer{Found: true, Link: f.Link}
	if f.MasterIndex != 0 {
		masters, err := c.getLinks(one(link.GetIndex(f.MasterIndex)))
		if err != nil {
			return a, err
		}
		for name := range masters {
			a.Link.Master = name
		}
	}
	addrs, err := c.addrs(f.Index)
	for _, found := range addrs {
		found.Link = f.Name
		a.Addrs = append(a.Addrs, found.Addr)
	}
	return a, err
}

func (c *Conn) answerLinkOf(ip netip.Addr) (state.Answer, error) {
	addrs, err := c.addrs(0)
	if err != nil {
		return state.Answer{}, err
	}
	for _, found := range addrs {
		if found.Prefix.Addr() == ip {
			return c.answerIndex(found.Index)
		}
	}
	return state.Answer{}, nil
}

func (c *Conn) answerIndex(index int) (state.Answer, error) {
	links, err := c.getLinks(one(link.GetIndex(index)))
	for _, f := range links {
		return c.describe(f)
	}
	return state.Answer{}, err
}

func (c *Conn) answerDefault(v6 bool) (state.Answer, error) {
	family := uint8(unix.AF_INET)
	if v6 {
		family = unix.AF_INET6
	}
	routes, err := c.routes(family, 0, unix.RT_TABLE_MAIN)
	if err != nil {
		return state.Answer{}, err
	}
	best := link.FoundRoute{}
	for _, r := range routes {
		if r.Dst.Bits() == 0 && r.Index != 0 && (best.Index == 0 || r.Metric < best.Metric) {
			best = r
		}
	}
	if best.Index == 0 {
		return state.Answer{}, nil
	}
	return c.answerIndex(best.Index)
}

func (c *Conn) answerRoutes(name string) (state.Answer, error) {
	links, err := c.linksByName([]string{name})
	if err != nil {
		return state.Answer{}, err
	}
	f, ok := links[name]
	if !ok {
		return state.Answer{}, nil
	}
	a := state.Answer{Found: true, Link: f.Link}
	for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
		routes, err := c.routes(family, f.Index, 0)
		if err != nil {
			return a, err
		}
		for _, r := range routes {
			if own(r) {
				continue
			}
			r.Link = name
			a.Routes = append(a.Routes, r.Route)
		}
	}
	return a, nil
}

// own tells whether the kernel made a route by itself: connected and local ones.
func own(r link.FoundRoute) bool {
	return r.Protocol == unix.RTPROT_KERNEL || r.Table == unix.RT_TABLE_LOCAL || r.Type != unix.RTN_UNICAST && r.Type != unix.RTN_BLACKHOLE &&
		r.Type != unix.RTN_UNREACHABLE && r.Type != unix.RTN_PROHIBIT && r.Type != unix.RTN_THROW
}
