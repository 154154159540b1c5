// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"net/netip"
	"slices"

	"github.com/weft-net/weft/internal/model"
)

// node is what policy needs of a node.
type node struct {
	labels labels
	addrs  []netip.Addr
}

// SetNode says what a node is.
func (x *Index) SetNode(in model.Node) {
	n := &node{labels: intern(in.Labels), addrs: slices.Clone(in.Addrs)}
	if was := x.nodes[in.Name]; was != nil && slices.Equal(was.labels, n.labels) && slices.Equal(was.addrs, n.addrs) {
		return
	}
	x.renode(func() { x.nodes[in.Name] = n })
}

// DelNode says that there is no such node.
func (x *Index) DelNode(name string) {
	if x.nodes[name] != nil {
		x.renode(func() { delete(x.nodes, name) })
	}
}

// renode changes the nodes; there are few of them and they seldom change, so that groups of them are made anew.
func (x *Index) renode(change func()) {
	before := map[*group][]element{}
	for _, g := range x.groups {
		if g.nodes != nil {
			before[g] = x.nodesOf(g.groupSpec)
		}
	}
	change()
	for g, was := range before {
		is := x.nodesOf(g.groupSpec)
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

// nodesOf are the addresses of the nodes that a group selects, sorted.
func (x *Index) nodesOf(g *groupSpec) []element {
	var out []element
	for _, n := range x.nodes {
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
