// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/kernel/link"
	"github.com/weft-net/weft/internal/state"
)

// Read tells what the kernel holds of the things that want names. A thing that agrees with what want says of it is given
// in want's own words, fields that want leaves open stay open; one that differs is given as the kernel has it; a missing
// one is left out. So Read(want) equals want exactly when Diff finds nothing.
func (c *Conn) Read(ctx context.Context, want state.Space) (state.Space, error) {
	v, err := look(ctx, state.Host, c, want)
	if err != nil {
		return state.Space{}, err
	}
	if err := v.readAll(ctx); err != nil {
		return state.Space{}, err
	}
	var out state.Space
	for _, l := range want.Links {
		var d list
		v.diffLink(&d, l)
		have, ok := v.links[l.Name]
		switch {
		case len(d) == 0:
			out.Links = append(out.Links, l)
		case ok:
			out.Links = append(out.Links, v.named(have))
		}
	}
	for _, a := range want.Addrs {
		if found, equal := v.hasAddr(a); equal {
			out.Addrs = append(out.Addrs, a)
		} else if found != nil {
			found.Link = a.Link
			out.Addrs = append(out.Addrs, found.Addr)
		}
	}
	for _, r := range want.Routes {
		if found, equal := v.hasRoute(r); equal {
			out.Routes = append(out.Routes, r)
		} else if found != nil {
			found.Link = r.Link
			out.Routes = append(out.Routes, found.Route)
		}
	}
	v.readRest(&out)
	if len(want.Tables) > 0 {
		n, err := c.tables()
		if err != nil {
			return out, err
		}
		if out.Tables, err = n.Read(ctx, want.Tables); err != nil {
			return out, fmt.Errorf("nft: %w", err)
		}
	}
	if len(want.IPTables) > 0 {
		if out.IPTables, err = c.IPTables().Read(ctx, want.IPTables); err != nil {
			return out, err
		}
	}
	out.Sources, err = v.readSources(ctx)
	return out, err
}

func (v *view) readRest(out *state.Space) {
	for _, n := range v.want.Neighs {
		if found, equal := v.hasNeigh(n); equal {
			out.Neighs = append(out.Neighs, n)
		} else if found != nil {
			found.Link = n.Link
			out.Neighs = append(out.Neighs, found.Neigh)
		}
	}
	v.readFoundFDBs(out)
	for _, r := range v.want.Rules {
		if v.hasRule(r) {
			out.Rules = append(out.Rules, r)
		}
	}
	for _, s := range v.want.Sysctls {
		have, equal := v.hasSysctl(s)
		if !equal && !v.values[s.Name].Hidden {
			s.Value = have
		}
		out.Sysctls = append(out.Sysctls, s)
	}
	for _, j := range v.want.Joins {
		if _, equal := v.hasJoin(j); equal {
			out.Joins = append(out.Joins, j)
		}
	}
	for _, q := range v.want.Qdiscs {
		if _, equal := v.hasQdisc(q); equal {
			out.Qdiscs = append(out.Qdiscs, q)
		} else if root := v.queues[q.Link].root; q.Kind != state.Ingress && root != nil && root.Handle != 0 {
			root.Link = q.Link
			out.Qdiscs = append(out.Qdiscs, root.Qdisc)
		}
	}
}

// ReadAll tells what the whole namespace holds: links, addresses, routes, permanent neighbours, rules, weft's nft
// tables. What the kernel makes by itself is left out: connected and local routes, link-local addresses.
func (c *Conn) ReadAll(ctx context.Context) (state.Space, error) {
	var out state.Space
	links, err := c.links(ctx, 0)
	if err != nil {
		return out, err
	}
	for _, f := range links {
		if master, ok := links[f.MasterIndex]; ok {
			f.Master = master.Name
		}
		out.Links = append(out.Links, f.Link)
	}
	slices.SortFunc(out.Links, func(a, b state.Link) int { return cmp.Compare(a.Name, b.Name) })
	addrs, err := c.addrs(ctx, 0)
	if err != nil {
		return out, err
	}
	for _, a := range addrs {
		if a.Link = links[a.Index].Name; !a.Own && !linkLocal(a.Prefix) {
			out.Addrs = append(out.Addrs, a.Addr)
		}
	}
	slices.SortFunc(out.Addrs, func(a, b state.Addr) int { return cmp.Compare(a.String(), b.String()) })
	if err := c.readAllRoutes(ctx, &out, links); err != nil {
		return out, err
	}
	for _, proxy := range []bool{false, true} {
		neighs, err := c.neighs(ctx, proxy)
		if err != nil {
			return out, err
		}
		for _, n := range neighs {
			if n.Link = links[n.Index].Name; n.Permanent || n.Proxy {
				out.Neighs = append(out.Neighs, n.Neigh)
			}
		}
	}
	if err := c.readAllFDBs(ctx, &out, links); err != nil {
		return out, err
	}
	slices.SortFunc(out.Neighs, func(a, b state.Neigh) int { return cmp.Compare(a.String(), b.String()) })
	rules, err := c.rules(ctx)
	if err != nil {
		return out, err
	}
	for _, r := range rules {
		if r.Protocol != unix.RTPROT_KERNEL {
			out.Rules = append(out.Rules, r.Rule)
		}
	}
	n, err := c.tables()
	if err != nil {
		return out, err
	}
	out.Tables, err = n.ReadAll(ctx)
	return out, err
}

func (c *Conn) readAllRoutes(ctx context.Context, out *state.Space, links map[int]link.Found) error {
	for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
		routes, err := c.routes(ctx, family, 0, 0)
		if err != nil {
			return err
		}
		for _, r := range routes {
			if own(r) {
				continue
			}
			r.Link = links[r.Index].Name
			out.Routes = append(out.Routes, r.Route)
		}
	}
	slices.SortFunc(out.Routes, func(a, b state.Route) int { return cmp.Compare(a.String(), b.String()) })
	return nil
}
