// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"context"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/kernel/interim/link"
	"github.com/weft-net/weft/internal/kernel/interim/sysctl"
	"github.com/weft-net/weft/internal/state"
)

// view is what one namespace holds of the things that a space names.
type view struct {
	name  state.SpaceName
	conn  *Conn
	want  state.Space
	links map[string]link.Found
	// made are the links that Apply has just created: nothing is on them yet.
	made   map[string]bool
	addrs  map[string][]link.FoundAddr
	routes []link.FoundRoute
	neighs map[string][]link.FoundNeigh
	rules  []link.FoundRule
	values map[string]sysctl.Value
}

// linkNames are all links that a space speaks of, in the order in which it does.
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
	}
	for _, n := range s.Neighs {
		add(n.Link)
	}
	return names
}

// look reads the links a space names.
func look(name state.SpaceName, c *Conn, want state.Space) (*view, error) {
	v := &view{name: name, conn: c, want: want, made: map[string]bool{}}
	if c == nil {
		v.links = map[string]link.Found{}
		return v, nil
	}
	var err error
	v.links, err = c.linksByName(linkNames(want))
	return v, err
}

// readAll reads everything else that the space names, for the links that were there before.
func (v *view) readAll(ctx context.Context) error {
	if err := ctx.Err(); err != nil || v.conn == nil {
		return err
	}
	for _, read := range []func() error{v.readAddrs, v.readRoutes, v.readNeighs, v.readRules, v.readSysctls} {
		if err := read(); err != nil {
			return err
		}
	}
	return nil
}

// old is a link that existed before this Apply and may therefore hold things.
func (v *view) old(name string) (link.Found, bool) {
	f, ok := v.links[name]
	return f, ok && !v.made[name]
}

func (v *view) readAddrs() error {
	v.addrs = map[string][]link.FoundAddr{}
	for _, a := range v.want.Addrs {
		f, ok := v.old(a.Link)
		if _, done := v.addrs[a.Link]; done || !ok {
			continue
		}
		found, err := v.conn.addrs(f.Index)
		if err != nil {
			return err
		}
		v.addrs[a.Link] = found
	}
	return nil
}

func (v *view) readRoutes() error {
	type question struct {
		family uint8
		index  int
		table  uint32
	}
	var asked []question
	for _, r := range v.want.Routes {
		f, ok := v.old(r.Link)
		if r.Link != "" && !ok {
			continue
		}
		q := question{family: unix.AF_INET, index: f.Index, table: link.Normal(r).Table}
		if r.Dst.Addr().Is6() {
			q.family = unix.AF_INET6
			if r.Link == "" { // the kernel shows an IPv6 blackhole as a route over lo
				q.index = 0
			}
		}
		if slices.Contains(asked, q) {
			continue
		}
		asked = append(asked, q)
		found, err := v.conn.routes(q.family, q.index, q.table)
		if err != nil {
			return err
		}
		v.routes = append(v.routes, found...)
	}
	return nil
}

func (v *view) readNeighs() error {
	v.neighs = map[string][]link.FoundNeigh{}
	for _, n := range v.want.Neighs {
		f, ok := v.old(n.Link)
		if _, done := v.neighs[n.Link]; done || !ok {
			continue
		}
		found, err := v.conn.neighs(f.Index, false)
		if err != nil {
			return err
		}
		v.neighs[n.Link] = found
	}
	for _, n := range v.want.Neighs {
		f, ok := v.old(n.Link)
		if !n.Proxy || !ok {
			continue
		}
		found, err := v.conn.neighs(f.Index, true)
		if err != nil {
			return err
		}
		v.neighs[n.Link] = append(v.neighs[n.Link], found...)
	}
	return nil
}

func (v *view) readRules() error {
	if len(v.want.Rules) == 0 {
		return nil
	}
	var err error
	v.rules, err = v.conn.rules()
	return err
}

func (v *view) readSysctls() error {
	names := make([]string, 0, len(v.want.Sysctls))
	for _, s := range v.want.Sysctls {
		if !v.inLinkMessage(s) {
			names = append(names, s.Name)
		}
	}
	var err error
	v.values, err = sysctl.Read(v.conn.ns, names)
	return err
}
