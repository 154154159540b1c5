// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"slices"

	"github.com/weft-net/weft/internal/model"
)

// groups are those that the tables use. They observe the cluster: elements are counted by the pods that have them, and
// changes are pending until the next sweep.
type groups struct {
	cluster *cluster
	all     map[string]*group
	of      map[*identity][]*group // the groups that it is a member of
}

// group is a group in use.
type group struct {
	*groupSpec
	refs    int
	members map[*identity]bool
	pending map[element]bool // since the last sweep: true for added, false for removed elements
}

func newGroups(c *cluster) *groups {
	return &groups{cluster: c, all: map[string]*group{}, of: map[*identity][]*group{}}
}

// use returns the group of the spec, and creates it if it is new.
func (gs *groups) use(spec *groupSpec) *group {
	g := gs.all[spec.id]
	if g == nil {
		g = &group{groupSpec: spec, members: map[*identity]bool{}, pending: map[element]bool{}}
		gs.all[spec.id] = g
		for id := range gs.cluster.pods.identities() {
			if g.selects(id) {
				gs.enter(g, id)
			}
		}
	}
	g.refs++
	return g
}

// sweep deletes groups that are not used any more, and clears pending changes.
func (gs *groups) sweep() {
	for id, g := range gs.all {
		clear(g.pending)
		if g.refs > 0 {
			continue
		}
		for m := range g.members {
			gs.leave(g, m)
		}
		delete(gs.all, id)
	}
}

func (gs *groups) enter(g *group, id *identity) {
	g.members[id] = true
	gs.of[id] = append(gs.of[id], g)
}

func (gs *groups) leave(g *group, id *identity) {
	delete(g.members, id)
	if gs.of[id] = slices.DeleteFunc(gs.of[id], func(o *group) bool { return o == g }); len(gs.of[id]) == 0 {
		delete(gs.of, id)
	}
}

// setMember adds all pods of an identity to a group, or removes them.
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
	gs.leave(g, id)
	note()
}

// reselect evaluates all groups again for a namespace whose labels have changed.
func (gs *groups) reselect(s *namespace) {
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

func (gs *groups) identityAdded(id *identity) {
	for _, g := range gs.all {
		if g.selects(id) {
			gs.enter(g, id)
		}
	}
}

func (gs *groups) identityRemoved(id *identity) {
	for _, g := range gs.of[id] {
		delete(g.members, id)
	}
	delete(gs.of, id)
}

func (gs *groups) podChanged(p *pod, came bool) {
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

// nodesChanged recomputes groups of nodes: there are few nodes, and they seldom change.
func (gs *groups) nodesChanged(change func()) {
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

// pend records that an element was added or removed.
func (g *group) pend(e element, came bool) {
	if was, is := g.pending[e]; is && was != came {
		delete(g.pending, e)
		return
	}
	g.pending[e] = came
}

// nodesOf returns the addresses of the nodes that a group selects, sorted.
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

// has reports whether a pod or node in the group has the element.
func (gs *groups) has(g *group, e element) bool {
	return gs.holds(g.groupSpec, e, func(id *identity) bool { return g.members[id] })
}

// matches reports whether the element is in the group of the spec, which need not be in use.
func (gs *groups) matches(spec *groupSpec, e element) bool {
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
		for p := range gs.cluster.pods.holders.of(networkAddr{network, e.addr}) {
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

// elements returns all elements of a group, sorted.
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
