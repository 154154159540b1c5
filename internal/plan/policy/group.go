// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"

	"github.com/weft-net/weft/internal/model"
)

// groupSpec says what is in a group.
type groupSpec struct {
	// id is the same for all groups that hold the same.
	id string
	// terms select pods; any: all pods are meant. local: only pods with an endpoint on this node.
	terms []term
	any   bool
	local bool
	// networks are those whose addresses are meant, "" being the cluster's.
	networks []string
	// port is not nil where the elements are ports of that name rather than addresses.
	port *portName
	// nodes select nodes; then there are no pods.
	nodes []selector
}

// portName is a port as policies name it; an empty protocol is any.
type portName struct {
	name     string
	protocol model.Protocol
}

// element is an address of a group, with the named port where it is about ports.
type element struct {
	addr     netip.Addr
	protocol model.Protocol
	port     uint16
}

func (e element) compare(o element) int {
	return cmp.Or(e.addr.Compare(o.addr), strings.Compare(string(e.protocol), string(o.protocol)), cmp.Compare(e.port, o.port))
}

// group is a live one.
type group struct {
	*groupSpec
	refs    int
	members map[*identity]bool
	pending map[element]bool // since the last Changes: true for what came, false for what went
}

// useGroup is the group of the spec, made when it is new.
func (x *Index) useGroup(spec *groupSpec) *group {
	g := x.groups[spec.id]
	if g == nil {
		g = &group{groupSpec: spec, members: map[*identity]bool{}, pending: map[element]bool{}}
		x.groups[spec.id] = g
		for id := range x.identities() {
			if g.selects(id) {
				g.members[id] = true
				id.groups = append(id.groups, g)
			}
		}
	}
	g.refs++
	return g
}

// sweep forgets the groups that nothing uses any more, and what is pending.
func (x *Index) sweep() {
	for id, g := range x.groups {
		clear(g.pending)
		if g.refs > 0 {
			continue
		}
		for m := range g.members {
			m.groups = slices.DeleteFunc(m.groups, func(o *group) bool { return o == g })
		}
		delete(x.groups, id)
	}
}

func (x *Index) identities() func(yield func(*identity) bool) {
	return func(yield func(*identity) bool) {
		for _, s := range x.spaces {
			for _, first := range s.identities {
				for id := first; id != nil; id = id.next {
					if !yield(id) {
						return
					}
				}
			}
		}
	}
}

// selects tells whether the pods of the identity are in the group.
func (g *groupSpec) selects(id *identity) bool {
	return g.any || slices.ContainsFunc(g.terms, func(t term) bool { return t.matches(id) })
}

// of yields what a pod brings into the group.
func (g *groupSpec) of(p *pod) []element {
	if g.local && p.locals == 0 {
		return nil
	}
	var out []element
	for h := range p.homes {
		if !slices.Contains(g.networks, h.network) {
			continue
		}
		if e := (element{addr: h.addr}); g.port == nil {
			if !slices.Contains(out, e) { // several interfaces may say the same address
				out = append(out, e)
			}
			continue
		}
		for _, port := range p.ports() {
			e := element{h.addr, port.Protocol, port.Number}
			if g.port.is(port) && !slices.Contains(out, e) {
				out = append(out, e)
			}
		}
	}
	return out
}

func (n *portName) is(p model.PodPort) bool {
	return p.Name == n.name && (n.protocol == "" || n.protocol == p.Protocol)
}

// has tells whether some pod brings the element into the group.
func (x *Index) has(g *group, e element) bool {
	return x.holds(g.groupSpec, e, func(id *identity) bool { return g.members[id] })
}

// holds is has for a group that need not be a live one.
func (x *Index) holds(g *groupSpec, e element, member func(*identity) bool) bool {
	if g.nodes != nil {
		return slices.Contains(x.nodesOf(g), e)
	}
	for _, network := range g.networks {
		for p := range x.holders.of(homed{network, e.addr}) {
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

// pend notes that an element came or went.
func (g *group) pend(e element, came bool) {
	if was, is := g.pending[e]; is && was != came {
		delete(g.pending, e)
		return
	}
	g.pending[e] = came
}

// setMember puts all pods of an identity into a group, or takes them out.
func (x *Index) setMember(g *group, id *identity, is bool) {
	all := map[element]bool{}
	for _, p := range id.pods {
		for _, e := range g.of(p) {
			all[e] = true
		}
	}
	note := func() {
		for e := range all {
			if !x.has(g, e) {
				g.pend(e, is)
			}
		}
	}
	if is {
		note()
		g.members[id] = true
		id.groups = append(id.groups, g)
		return
	}
	delete(g.members, id)
	id.groups = slices.DeleteFunc(id.groups, func(o *group) bool { return o == g })
	note()
}

// withdraw takes what a pod brings out of all groups, before the pod changes.
func (x *Index) withdraw(p *pod) {
	for h := range p.homes {
		x.holders.remove(h, p)
	}
	x.tell(p, false)
}

// announce brings it back.
func (x *Index) announce(p *pod) {
	x.tell(p, true)
	for h := range p.homes {
		x.holders.add(h, p)
	}
}

func (x *Index) tell(p *pod, came bool) {
	if p.identity == nil {
		return
	}
	for _, g := range p.identity.groups {
		for _, e := range g.of(p) {
			if !x.has(g, e) {
				g.pend(e, came)
			}
		}
	}
}

// elements are all of a group, sorted.
func (x *Index) elements(g *group) []element {
	if g.nodes != nil {
		return x.nodesOf(g.groupSpec)
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
