// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"slices"

	"github.com/weft-net/weft/internal/model"
)

// groups are those that the tables use. They follow the cluster: what comes to a group and goes from it is counted,
// whichever pods bring it, until the next sweep.
type groups struct {
	cluster *cluster
	all     map[string]*group
	of      map[*identity][]*group // those that it is a member of
}

// group is a live one.
type group struct {
	*groupSpec
	refs    int
	members map[*identity]bool
	pending map[element]bool // since the last sweep: true for what came, false for what went
}

func newGroups(c *cluster) *groups {
	return &groups{cluster: c, all: map[string]*group{}, of: map[*identity][]*group{}}
}

// use is the group of the spec, made when it is new.
func (gs *groups) use(spec *groupSpec) *group {
	g := gs.all[spec.id]
	if g == nil {
		g = &group{groupSpec: spec, members: map[*identity]bool{}, pending: map[element]bool{}}
		gs.all[spec.id] = g
		for id := range gs.cluster.identities() {
			if g.selects(id) {
				gs.enter(g, id)
			}
		}
	}
	g.refs++
	return g
}

// sweep forgets the groups that nothing uses any more, and what is pending.
func (gs *groups) sweep() {
	for id, g := range gs.all {
		clear(g.pending)
		if g.refs > 0 {
			continue
		}
		for m := range g.members {
			gs.quit(g, m)
		}
		delete(gs.all, id)
	}
}

func (gs *groups) enter(g *group, id *identity) {
	g.members[id] = true
	gs.of[id] = append(gs.of[id], g)
}

func (gs *groups) quit(g *group, id *identity) {
	delete(g.members, id)
	if gs.of[id] = slices.DeleteFunc(gs.of[id], func(o *group) bool { return o == g }); len(gs.of[id]) == 0 {
		delete(gs.of, id)
	}
}

// setMember puts all pods of an identity into a group, or takes them out.
func (gs *groups) setMember(g *group, id *identity, is bool) {
	all := map[element]bool{}
	for _, p := range id.pods {
		for _, e := range g.of(p) {
			all[e] = true
		}
	}
	note := func() {
		for e := range all {
			if !gs.has(g, e) {
				g.pend(e, is)
			}
		}
	}
	if is {
		note()
		gs.enter(g, id)
		return
	}
	gs.quit(g, id)
	note()
}

// reselect asks all groups again about a namespace whose labels have changed.
func (gs *groups) reselect(s *space) {
	for _, first := range s.identities {
		for id := first; id != nil; id = id.next {
			for _, g := range gs.all {
				if was, is := g.members[id], g.selects(id); was != is {
					gs.setMember(g, id, is)
				}
			}
		}
	}
}

func (gs *groups) appeared(id *identity) {
	for _, g := range gs.all {
		if g.selects(id) {
			gs.enter(g, id)
		}
	}
}

func (gs *groups) vanished(id *identity) {
	for _, g := range gs.of[id] {
		delete(g.members, id)
	}
	delete(gs.of, id)
}

func (gs *groups) brings(p *pod, came bool) {
	if p.identity == nil {
		return
	}
	for _, g := range gs.of[p.identity] {
		for _, e := range g.of(p) {
			if !gs.has(g, e) {
				g.pend(e, came)
			}
		}
	}
}

// renode has groups of nodes be made anew: there are few nodes, and they seldom change.
func (gs *groups) renode(change func()) {
	before := map[*group][]element{}
	for _, g := range gs.all {
		if g.nodes != nil {
			before[g] = gs.nodesOf(g.groupSpec)
		}
	}
	change()
	for g, was := range before {
		is := gs.nodesOf(g.groupSpec)
		for _, e := range was {
			if _, found := slices.BinarySearchFunc(is, e, element.compare); !found {
				g.pend(e, false)
			}
		}
		for _, e := range is {
			if _, found := slices.BinarySearchFunc(was, e, element.compare); !found {
				g.pend(e, true)
			}
		}
	}
}

// pend notes that an element came or went.
func (g *group) pend(e element, came bool) {
	if was, is := g.pending[e]; is && was != came {
		delete(g.pending, e)
		return
	}
	g.pending[e] = came
}

// nodesOf are the addresses of the nodes that a group selects, sorted.
func (gs *groups) nodesOf(g *groupSpec) []element {
	var out []element
	for _, n := range gs.cluster.nodes {
		if !slices.ContainsFunc(g.nodes, func(s selector) bool { return s.matches(n.labels) }) {
			continue
		}
		for _, a := range n.addrs {
			out = append(out, element{addr: a})
		}
	}
	slices.SortFunc(out, element.compare)
	return slices.Compact(out)
}

// has tells whether some pod brings the element into the group.
func (gs *groups) has(g *group, e element) bool {
	return gs.holds(g.groupSpec, e, func(id *identity) bool { return g.members[id] })
}

// asks tells whether the element is in the group that the spec says, which need not be a live one.
func (gs *groups) asks(spec *groupSpec, e element) bool {
	if g := gs.all[spec.id]; g != nil {
		return gs.has(g, e)
	}
	return gs.holds(spec, e, spec.selects)
}

func (gs *groups) holds(g *groupSpec, e element, member func(*identity) bool) bool {
	if g.nodes != nil {
		return slices.Contains(gs.nodesOf(g), e)
	}
	for _, network := range g.networks {
		for p := range gs.cluster.holders.of(homed{network, e.addr}) {
			if member(p.identity) && (!g.local || p.locals > 0) &&
				(g.port == nil || slices.ContainsFunc(p.ports(), func(o model.PodPort) bool {
					return g.port.is(o) && o.Protocol == e.protocol && o.Number == e.port
				})) {
				return true
			}
		}
	}
	return false
}

// elements are all of a group, sorted.
func (gs *groups) elements(g *group) []element {
	if g.nodes != nil {
		return gs.nodesOf(g.groupSpec)
	}
	var out []element
	for id := range g.members {
		for _, p := range id.pods {
			out = append(out, g.of(p)...)
		}
	}
	slices.SortFunc(out, element.compare)
	return slices.Compact(out)
}
