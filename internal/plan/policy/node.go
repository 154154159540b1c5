// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"slices"

	"github.com/weft-net/weft/internal/model"
)

// setNode adds or replaces a node.
func (c *cluster) setNode(in model.Node) {
	n := &node{labels: intern(in.Labels), addrs: slices.Clone(in.Addrs)}
	if was := c.nodes[in.Name]; was != nil && slices.Equal(was.labels, n.labels) && slices.Equal(was.addrs, n.addrs) {
		return
	}
	c.observer.nodesChanged(func() { c.nodes[in.Name] = n })
}

// delNode deletes a node.
func (c *cluster) delNode(name string) {
	if c.nodes[name] != nil {
		c.observer.nodesChanged(func() { delete(c.nodes, name) })
	}
}
