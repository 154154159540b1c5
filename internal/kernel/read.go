// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"cmp"
	"context"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/kernel/link"
	"github.com/weft-net/weft/internal/state"
)

// Read returns the existing objects that want names. An object that matches is returned as in want, with unset fields
// unset; one that differs is returned as the kernel has it; a missing one is left out. So Read(want) equals want
// exactly when Diff finds nothing.
func (c *Conn) Read(ctx context.Context, want state.Space) (state.Space, error) {
	v, err := readView(ctx, state.Host, c, want)
	if err != nil {
		return state.Space{}, err
	}
	if err := v.readAll(ctx); err != nil {
		return state.Space{}, err
	}
	var out state.Space
	for _, p := range v.parts() {
		p.report(&out)
	}
	return out, v.filters.report(ctx, &out)
}

// ReadAll returns all objects of the namespace: links, addresses, routes, permanent neighbors, rules, weft's nft
// tables. It leaves out objects that the kernel creates: connected and local routes, link-local addresses.
func (c *Conn) ReadAll(ctx context.Context) (state.Space, error) {
	var out state.Space
	links, err := c.reader.Links(ctx, 0)
	if err != nil {
		return out, err
	}
	out.Links = withMasters(links)
	addrs, err := c.reader.Addrs(ctx, 0)
	if err != nil {
		return out, err
	}
	for _, a := range addrs {
		if a.Link = links[a.Index].Name; !a.Own && !a.LinkLocal() {
			out.Addrs = append(out.Addrs, a.Addr)
		}
	}
	slices.SortFunc(out.Addrs, func(a, b state.Addr) int { return cmp.Compare(a.String(), b.String()) })
	if err := c.allRoutes(ctx, &out, links); err != nil {
		return out, err
	}
	for _, proxy := range []bool{false, true} {
		neighs, err := c.reader.Neighs(ctx, 0, proxy)
		if err != nil {
			return out, err
		}
		for _, n := range neighs {
			if n.Link = links[n.Index].Name; n.Permanent || n.Proxy {
				out.Neighs = append(out.Neighs, n.Neigh)
			}
		}
	}
	if err := c.allFDBs(ctx, &out, links); err != nil {
		return out, err
	}
	slices.SortFunc(out.Neighs, func(a, b state.Neigh) int { return cmp.Compare(a.String(), b.String()) })
	rules, err := c.reader.Rules(ctx)
	if err != nil {
		return out, err
	}
	for _, r := range rules {
		if r.Protocol != unix.RTPROT_KERNEL {
			out.Rules = append(out.Rules, r.Rule)
		}
	}
	n, err := c.Netfilter()
	if err != nil {
		return out, err
	}
	out.Tables, err = n.ReadAll(ctx)
	return out, err
}

// Links returns all links of the namespace, sorted by name.
func (c *Conn) Links(ctx context.Context) ([]state.Link, error) {
	links, err := c.reader.Links(ctx, 0)
	return withMasters(links), err
}

// Addrs returns the addresses of the namespace's links by their names, among them those that the kernel has chosen.
func (c *Conn) Addrs(ctx context.Context) (map[string][]netip.Addr, error) {
	links, err := c.reader.Links(ctx, 0)
	if err != nil {
		return nil, err
	}
	addrs, err := c.reader.Addrs(ctx, 0)
	out := map[string][]netip.Addr{}
	for _, a := range addrs {
		name := links[a.Index].Name
		out[name] = append(out[name], a.Prefix.Addr())
	}
	return out, err
}

func withMasters(links map[int]link.Found) []state.Link {
	var out []state.Link
	for _, f := range links {
		if master, ok := links[f.MasterIndex]; ok {
			f.Master = master.Name
		}
		out = append(out, f.Link)
	}
	slices.SortFunc(out, func(a, b state.Link) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

func (c *Conn) allRoutes(ctx context.Context, out *state.Space, links map[int]link.Found) error {
	for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
		routes, err := c.reader.Routes(ctx, family, 0, 0)
		if err != nil {
			return err
		}
		for _, r := range routes {
			if r.ByKernel() {
				continue
			}
			r.Name(func(index int) string { return links[index].Name })
			out.Routes = append(out.Routes, r.Route)
		}
	}
	slices.SortFunc(out.Routes, func(a, b state.Route) int { return cmp.Compare(a.String(), b.String()) })
	return nil
}

// allFDBs reads the permanent entries of all VXLAN devices.
func (c *Conn) allFDBs(ctx context.Context, out *state.Space, links map[int]link.Found) error {
	for _, l := range links {
		if l.Kind != state.VXLAN {
			continue
		}
		found, err := c.reader.PermanentFDBs(ctx, l)
		if err != nil {
			return err
		}
		out.FDBs = append(out.FDBs, found...)
	}
	slices.SortFunc(out.FDBs, func(a, b state.FDB) int { return cmp.Compare(a.String(), b.String()) })
	return nil
}
