// SPDX-License-Identifier: Apache-2.0

// Package membership is this node among the nodes of the cluster, by the current snapshot.
package membership

import (
	"hash/fnv"
	"net/netip"
	"slices"
	"strings"

	"github.com/weft-net/weft/internal/model"
)

// Node is this node among the others.
type Node struct {
	Name string
	// Cluster is the current snapshot. It, and what it returns, may be nil: nothing is known then.
	Cluster func() *model.Cluster
}

func (n Node) nodes() []model.Node {
	if n.Cluster == nil {
		return nil
	}
	c := n.Cluster()
	if c == nil {
		return nil
	}
	return c.Nodes
}

// Self is the node's own object; false before it is known.
func (n Node) Self() (model.Node, bool) {
	nodes := n.nodes()
	i, found := slices.BinarySearchFunc(nodes, n.Name, func(o model.Node, name string) int {
		return strings.Compare(o.Name, name)
	})
	if !found {
		return model.Node{}, false
	}
	return nodes[i], true
}

// Labels are this node's labels; false before they are known.
func (n Node) Labels() (map[string]string, bool) {
	self, known := n.Self()
	return self.Labels, known
}

// PodCIDRs are the prefixes that the cluster gave this node.
func (n Node) PodCIDRs() []netip.Prefix {
	self, _ := n.Self()
	return self.PodCIDRs
}

// All are the names of the nodes that have objects, nil before that is known.
func (n Node) All() map[string]bool {
	if n.Cluster == nil || n.Cluster() == nil {
		return nil
	}
	out := map[string]bool{}
	for _, o := range n.nodes() {
		out[o.Name] = true
	}
	return out
}

// Rank is how many nodes come before this one, in an order that is the same everywhere and no name's advantage.
func (n Node) Rank() int {
	hash := func(name string) uint64 {
		h := fnv.New64a()
		_, _ = h.Write([]byte(name))
		return h.Sum64()
	}
	me, before := hash(n.Name), 0
	for name := range n.All() {
		if hash(name) < me {
			before++
		}
	}
	return before
}
