// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"context"
	"slices"

	"github.com/weft-net/weft/internal/kernel/join"
	"github.com/weft-net/weft/internal/kernel/netfilter"
	"github.com/weft-net/weft/internal/kernel/reader"
	"github.com/weft-net/weft/internal/kernel/rtnl"
	"github.com/weft-net/weft/internal/kernel/sysctl"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/state"
)

// view holds one namespace's objects that a space names: a part for each kind of them. A part has the wanted and the
// found objects of its kind, and finds links by name in links; it does not know other parts.
type view struct {
	name state.SpaceName
	conn *Conn // nil when the namespace was deleted
	want state.Space
	// also are further links to read: parents of links.
	also []string

	links     *links
	checksums checksums
	settings  *linkSettings
	addrs     *addrs
	routes    *routes
	neighs    *neighs
	fdbs      *fdbs
	rules     *rules
	sysctls   *sysctls
	joins     *joins
	qdiscs    *qdiscs
	filters   filters
}

// part is one kind of object in a namespace.
type part interface {
	// read reads the existing objects among the wanted ones, on links that existed before.
	read(ctx context.Context) error
	// diff adds the differences.
	diff(out *diffs)
	// report adds the existing objects: matching ones as wanted, differing ones as the kernel has them.
	report(out *state.Space)
}

func newView(name state.SpaceName, c *Conn, want state.Space) *view {
	v := &view{name: name, conn: c, want: want, links: newLinks()}
	var (
		ask           *reader.Reader
		sock          *rtnl.Socket
		conf          *sysctl.Files
		ns            *netns.NS
		packetFilters *netfilter.Filters
		programs      join.Programs
		changing      func(name, value string) error
	)
	if c != nil {
		changing, programs = c.Changing, c.Programs
		ask, sock, conf, ns, packetFilters = c.reader, c.rtnl, c.conf, c.ns, c.Filters
	}
	v.checksums = checksums{want: want.Links, links: v.links, ns: ns}
	v.settings = &linkSettings{
		want: want.Links, links: v.links, vlans: &portVLANs{want: want.Links, links: v.links, reader: ask},
	}
	v.addrs = &addrs{want: want.Addrs, links: v.links, reader: ask}
	v.routes = &routes{want: want.Routes, links: v.links, reader: ask, sock: sock}
	v.neighs = &neighs{want: want.Neighs, links: v.links, reader: ask}
	v.fdbs = &fdbs{want: want.FDBs, links: v.links, reader: ask}
	v.rules = &rules{want: want.Rules, reader: ask}
	v.sysctls = &sysctls{want: want.Sysctls, links: v.links, files: conf, values: map[string]sysctl.Value{}, changing: changing}
	v.joins = &joins{
		space: name, want: want.Joins, wantLinks: want.Links, links: v.links,
		in: join.Namespace{NS: ns, Reader: ask, Socket: sock, Filters: packetFilters, Programs: programs},
	}
	v.qdiscs = &qdiscs{want: want.Qdiscs, links: v.links, reader: ask}
	v.filters = filters{
		space: name, tables: want.Tables, chains: want.IPTables, sources: want.Sources, filters: packetFilters,
	}
	return v
}

// parts returns all parts except for the links themselves and the packet filters, in the order in which differences are
// reported.
func (v *view) parts() []part {
	return []part{v.settings, v.addrs, v.routes, v.neighs, v.fdbs, v.rules, v.sysctls, v.joins, v.qdiscs}
}

// readView reads the links that a space names.
func readView(ctx context.Context, name state.SpaceName, c *Conn, want state.Space) (*view, error) {
	v := newView(name, c, want)
	return v, v.readLinks(ctx)
}

func (v *view) readLinks(ctx context.Context) error {
	if v.conn == nil {
		return nil
	}
	names := linkNames(v.want)
	for _, name := range v.also {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	found, err := v.conn.reader.LinksByName(ctx, names)
	if err != nil {
		return in(v.name, err)
	}
	v.links.found = found
	return in(v.name, v.checksums.read())
}

// readAll reads everything else that the space names, for the links that existed before.
func (v *view) readAll(ctx context.Context) error {
	if v.conn == nil {
		return nil
	}
	for _, p := range v.parts() {
		if err := p.read(ctx); err != nil {
			return in(v.name, err)
		}
	}
	return nil
}

// linkNames returns all links that a space refers to, in order.
func linkNames(s state.Space) []string {
	var names []string
	add := func(name string) {
		if name != "" && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	for _, l := range s.Links {
		add(l.Name)
		add(l.Master)
	}
	for _, a := range s.Addrs {
		add(a.Link)
	}
	for _, r := range s.Routes {
		add(r.Link)
		for _, h := range r.NextHops {
			add(h.Link)
		}
	}
	for _, n := range s.Neighs {
		add(n.Link)
	}
	for _, e := range s.FDBs {
		add(e.Link)
	}
	for _, q := range s.Qdiscs {
		add(q.Link)
		add(q.Redirect)
	}
	for _, j := range s.Joins {
		add(j.Tap)
		add(j.Link)
	}
	for _, s := range s.Sysctls {
		if c, ok := sysctl.Of(s.Name); ok {
			add(c.Link)
		}
	}
	return names
}
