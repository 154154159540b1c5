// SPDX-License-Identifier: Apache-2.0

// Package membership finds this node among the nodes of the cluster, in the current snapshot.
package membership

import (
	"hash/fnv"
	"net/netip"
	"slices"
	"strings"

	"github.com/weft-net/weft/internal/model"
)

// Node is this node as a member of the cluster.
type Node struct {
	Name string
	// Cluster returns the current snapshot. The function and the snapshot may be nil: nothing is known then.
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

// Self returns the node's own object; false before it is known.
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

// Labels returns this node's labels; false before they are known.
func (n Node) Labels() (map[string]string, bool) {
	self, known := n.Self()
	return self.Labels, known
}

// PodCIDRs returns the podCIDRs that the cluster assigned to this node.
func (n Node) PodCIDRs() []netip.Prefix {
	self, _ := n.Self()
	return self.PodCIDRs
}

// All returns the names of the nodes that have objects, nil before they are known.
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

// Rank returns how many nodes come before this one in an order that is the same on all nodes and independent of the
// alphabet.
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
