// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"slices"

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
	// brings says of a pod that no address is held by it: it is about to be, or has just ceased to be.
	brings(p *pod, came bool)
	// renode makes a change of the nodes.
	renode(change func())
}

func newCluster() *cluster {
	return &cluster{spaces: map[string]*space{}, nodes: map[string]*node{}, policies: map[model.PolicyKey]*policy{}, holders: newHolders()}
}

// podAt is the pod that has an address.
func (c *cluster) podAt(h homed) (model.PodRef, bool) {
	for p := range c.holders.of(h) {
		s := p.identity.space
		for name, o := range s.pods {
			if o == p {
				return model.PodRef{Namespace: s.name, Name: name}, true
			}
		}
	}
	return model.PodRef{}, false
}

// setPolicy has p, which may be nil, be the policy of the name, and gives what was it before.
func (c *cluster) setPolicy(key model.PolicyKey, p *policy) *policy {
	was := c.policies[key]
	delete(c.policies, key)
	if p != nil {
		c.policies[key] = p
	}
	list := &c.wide
	s := c.space(key.Namespace)
	switch key.Kind {
	case model.KindNetworkPolicy:
		list = &s.policies
	case model.KindMultiNetworkPolicy:
		list = &s.multis
	}
	*list = slices.DeleteFunc(*list, func(o *policy) bool { return o == was })
	if p != nil {
		i, _ := slices.BinarySearchFunc(*list, p, (*policy).order)
		*list = slices.Insert(*list, i, p)
	}
	c.dropSpace(s)
	return was
}

// selectedPods is how many pods of the cluster a policy selects.
func (c *cluster) selectedPods(p *policy) int {
	pods := 0
	for _, s := range c.spaces {
		if !p.subject.inSpace(s) {
			continue
		}
		for _, id := range s.identities {
			for ; id != nil; id = id.next {
				if p.subject.matches(id) {
					pods += len(id.pods)
				}
			}
		}
	}
	return pods
}
