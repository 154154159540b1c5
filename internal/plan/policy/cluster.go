// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"net/netip"

	"github.com/weft-net/weft/internal/model"
)

// cluster is what was told: namespaces with their pods, nodes and policies. It knows nothing of what is made of them.
type cluster struct {
	spaces   map[string]*space
	nodes    map[string]*node
	policies map[model.PolicyKey]*policy
	wide     []*policy // the ClusterNetworkPolicies, in the order in which they are asked
	holders  holders
	follower follower
}

// follower hears of what changes while it does: what a pod brings to its identity is said before and after.
type follower interface {
	// appeared says that there is a new identity, which has no pods yet; vanished, that its last one has gone.
	appeared(*identity)
	vanished(*identity)
	// brings says that what a pod brings to its groups is about to come, or has just gone: it holds none of its addresses
	// then.
	brings(p *pod, came bool)
	// renode makes a change of the nodes.
	renode(change func())
}

func newCluster() *cluster {
	return &cluster{
		spaces: map[string]*space{}, nodes: map[string]*node{}, policies: map[model.PolicyKey]*policy{},
		holders: newHolders(),
	}
}

// node is what policy needs of a node.
type node struct {
	labels labels
	addrs  []netip.Addr
}
