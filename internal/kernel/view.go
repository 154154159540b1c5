// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"context"
	"slices"

	"github.com/weft-net/weft/internal/kernel/link"
	"github.com/weft-net/weft/internal/kernel/sysctl"
	"github.com/weft-net/weft/internal/state"
)

// view is what one namespace holds of the things that a space names.
type view struct {
	name  state.SpaceName
	conn  *Conn
	want  state.Space
	links map[string]link.Found
	// also are further links to look at: parents of links.
	also []string
	// made are the links that this Apply has created: nothing is on them yet.
	made map[string]bool
	// raised are the links that this Apply has brought up.
	raised []state.Link
	// reborn tells that a link has its MTU back: below 1280 it had no IPv6, and all IPv6 settings begin anew.
	reborn bool
	// fresh6 are the links that this Apply has given an IPv6 address.
	fresh6 []string
	addrs  map[string][]link.FoundAddr
	routes map[routePlace][]link.FoundRoute
	neighs map[neighPlace]link.FoundNeigh
	fdbs   map[string]map[state.MAC]link.FoundFDB // by link
	rules  []link.FoundRule
	queues map[string]queues
	joins  map[string]joined // by tap
	values map[string]sysctl.Value
	vlans  map[string][]state.VlanRange
	// others finds the view of the other namespace, where both are read.
	others func(state.SpaceName) *view
}

func newView(name state.SpaceName, c *Conn, want state.Space) *view {
	return &view{
		name: name, conn: c, want: want,
		links: map[string]link.Found{}, made: map[string]bool{}, values: map[string]sysctl.Value{},
	}
}

// look reads the links that a space names.
func look(ctx context.Context, name state.SpaceName, c *Conn, want state.Space) (*view, error) {
	v := newView(name, c, want)
	return v, v.look(ctx)
}

func (v *view) look(ctx context.Context) error {
	if v.conn == nil {
		return nil
	}
	names := linkNames(v.want)
	for _, name := range v.also {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	links, err := v.conn.linksByName(ctx, names)
	if err != nil {
		return in(v.name, err)
	}
	v.links = links
	return in(v.name, v.readChecksums())
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

// readAll reads everything else that the space names, for the links that were there before.
func (v *view) readAll(ctx context.Context) error {
	if v.conn == nil {
		return nil
	}
	for _, read := range []func(context.Context) error{v.readAddrs, v.readRoutes, v.readNeighs, v.readFDBs, v.readRules, v.readSysctls, v.readQdiscs, v.readJoins, v.readVlans} {
		if err := read(ctx); err != nil {
			return in(v.name, err)
		}
	}
	return nil
}

// old is a link that existed before this Apply and may therefore hold things.
func (v *view) old(name string) (link.Found, bool) {
	f, ok := v.links[name]
	return f, ok && !v.made[name]
}

func (v *view) readAddrs(ctx context.Context) error {
	v.addrs = map[string][]link.FoundAddr{}
	for _, a := range v.want.Addrs {
		f, ok := v.old(a.Link)
		if _, done := v.addrs[a.Link]; done || !ok {
			continue
		}
		found, err := v.conn.addrs(ctx, f.Index)
		if err != nil {
			return err
		}
		v.addrs[a.Link] = found
	}
	return nil
}

func (v *view) readRules(ctx context.Context) error {
	if len(v.want.Rules) == 0 {
		return nil
	}
	var err error
	v.rules, err = v.conn.rules(ctx)
	return err
}
