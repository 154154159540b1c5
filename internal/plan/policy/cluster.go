// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"net/netip"

	"github.com/weft-net/weft/internal/model"
)

// cluster is the facts: namespaces with their pods, nodes and policies, and what Calico's policies refer to. It does not
// depend on what is compiled from them.
type cluster struct {
	pods     *podIndex
	nodes    map[string]*node
	policies map[model.PolicyKey]*policy
	wide     []*policy // the ClusterNetworkPolicies and Calico's policies, in order of evaluation
	tiers    tiers
	sets     networkSets
	slices   endpointSlices
	hosts    []model.HostEndpoint // of all nodes, sorted by name
	observer nodeObserver
}

// observer is notified of changes: before and after a pod's addresses or labels change.
type observer interface {
	// identityAdded: there is a new identity, without pods yet; identityRemoved: its last pod is gone.
	identityAdded(*identity)
	identityRemoved(*identity)
	// podChanged: a pod's addresses are about to be added, or were just removed.
	podChanged(p *pod, came bool)
}

// nodeObserver is notified of changes of nodes.
type nodeObserver interface {
	// nodesChanged calls change, which changes the nodes.
	nodesChanged(change func())
}

func newCluster() *cluster {
	return &cluster{
		pods: newPodIndex(), nodes: map[string]*node{}, policies: map[model.PolicyKey]*policy{},
		tiers: tiers{}, sets: networkSets{}, slices: endpointSlices{},
	}
}

// node is the part of a node that policies use.
type node struct {
	labels labels
	addrs  []netip.Addr
}
