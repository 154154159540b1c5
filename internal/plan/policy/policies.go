// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"slices"

	"github.com/weft-net/weft/internal/model"
)

// setPolicy sets the policy of a key, nil to delete it, and returns the previous one.
func (c *cluster) setPolicy(key model.PolicyKey, p *policy) *policy {
	was := c.policies[key]
	delete(c.policies, key)
	if p != nil {
		c.policies[key] = p
	}
	list := &c.wide
	s := c.pods.namespace(key.Namespace)
	switch key.Kind {
	case model.KindNetworkPolicy:
		list = &s.policies
	case model.KindMultiNetworkPolicy:
		list = &s.multis
	}
	*list = slices.DeleteFunc(*list, func(o *policy) bool { return o == was })
	if p != nil {
		i, _ := slices.BinarySearchFunc(*list, p, c.tiers.compare)
		*list = slices.Insert(*list, i, p)
	}
	c.pods.dropNamespace(s)
	return was
}

// selectedPods returns how many pods of the cluster a policy selects.
func (c *cluster) selectedPods(p *policy) int {
	pods := 0
	if p.Host.Only() {
		return 0
	}
	for _, s := range c.pods.namespaces {
		if !p.subject.matchesNamespace(s) {
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
