// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"slices"

	"github.com/weft-net/weft/internal/model"
)

// setNode adds or replaces a node, and reports whether that changed anything.
func (c *cluster) setNode(in model.Node) bool {
	n := &node{labels: intern(in.Labels), addrs: slices.Clone(in.Addrs)}
	if was := c.nodes[in.Name]; was != nil && slices.Equal(was.labels, n.labels) && slices.Equal(was.addrs, n.addrs) {
		return false
	}
	c.observer.nodesChanged(func() { c.nodes[in.Name] = n })
	return true
}

// facts returns the part of the node that host endpoints use.
func (n *node) facts(name string) model.Node {
	out := model.Node{Name: name, Addrs: n.addrs, Labels: map[string]string{}}
	for _, l := range n.labels {
		out.Labels[l.key.Value()] = l.value.Value()
	}
	return out
}

// delNode deletes a node.
func (c *cluster) delNode(name string) {
	if c.nodes[name] != nil {
		c.observer.nodesChanged(func() { delete(c.nodes, name) })
	}
}
