// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"net/netip"

	"github.com/weft-net/weft/internal/model"
)

// cluster is the facts: namespaces with their pods, nodes and policies. It does not depend on what is compiled from
// them.
type cluster struct {
	namespaces map[string]*namespace
	nodes      map[string]*node
	policies   map[model.PolicyKey]*policy
	wide       []*policy // the ClusterNetworkPolicies and Calico's policies, in order of evaluation
	tiers      map[model.PolicyTier]tier
	sets       map[setKey]*networkSet
	slices     map[setKey]model.EndpointSlice
	hosts      []model.HostEndpoint // of all nodes, sorted by name
	holders    holders
	observer   observer
	named      map[*pod]string // the names of pods that were asked for by their addresses; some may be wrong by now
}

// observer is notified of changes: before and after a pod's addresses or labels change.
type observer interface {
	// identityAdded: there is a new identity, without pods yet; identityRemoved: its last pod is gone.
	identityAdded(*identity)
	identityRemoved(*identity)
	// podChanged: a pod's addresses are about to be added, or were just removed.
	podChanged(p *pod, came bool)
	// nodesChanged calls change, which changes the nodes.
	nodesChanged(change func())
}

func newCluster() *cluster {
	return &cluster{
		namespaces: map[string]*namespace{}, nodes: map[string]*node{}, policies: map[model.PolicyKey]*policy{},
		tiers: map[model.PolicyTier]tier{}, sets: map[setKey]*networkSet{}, slices: map[setKey]model.EndpointSlice{},
		holders: newHolders(), named: map[*pod]string{},
	}
}

// node is the part of a node that policies use.
type node struct {
	labels labels
	addrs  []netip.Addr
}
