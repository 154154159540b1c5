// SPDX-License-Identifier: Apache-2.0

package model

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Condition is a condition of an object's status, as in the Kubernetes API.
type Condition struct {
	Type    string `json:"type"`
	True    bool   `json:"true"`
	Reason  string `json:"reason"`  // CamelCase, for programs
	Message string `json:"message"` // for users
}

// ConditionAllocatable is true if addresses can be allocated from the pool.
const ConditionAllocatable = "Allocatable"

// The reasons of ConditionAllocatable.
const (
	ReasonOK               = "OK"
	ReasonPoolDisabled     = "PoolDisabled"
	ReasonTerminating      = "Terminating"
	ReasonCIDROverlap      = "CIDROverlap"
	ReasonBadSelector      = "BadSelector"
	ReasonBadEncapsulation = "BadEncapsulation"
	ReasonInvalid          = "Invalid" // the object is invalid
)

// PoolConditions returns, by pool name, whether further addresses can be allocated from each pool. It depends on the
// pools only, so that every node comes to the same conclusion. Pools of the cluster's network must not overlap: the
// older one is used. Pools of other networks may overlap.
func PoolConditions(pools []AddressPool) map[string]Condition {
	out := make(map[string]Condition, len(pools))
	byAge := slices.Clone(pools)
	slices.SortFunc(byAge, func(a, b AddressPool) int {
		return cmp.Or(cmp.Compare(a.Created, b.Created), strings.Compare(a.Name, b.Name))
	})
	for i, p := range byAge {
		c := p.condition()
		if c.True && p.IsClusterPool() {
			c = overlap(p, byAge[:i], c)
		}
		out[p.Name] = c
	}
	return out
}

// Allocatable returns the pools from which further addresses can be allocated.
func Allocatable(pools []AddressPool) []AddressPool {
	conditions := PoolConditions(pools)
	return slices.DeleteFunc(slices.Clone(pools), func(p AddressPool) bool { return !conditions[p.Name].True })
}

// condition returns the pool's condition, without regard to other pools.
func (p AddressPool) condition() Condition {
	not := func(reason, format string, args ...any) Condition {
		return Condition{Type: ConditionAllocatable, Reason: reason, Message: fmt.Sprintf(format, args...)}
	}
	for _, s := range []struct{ field, text string }{
		{"nodeSelector", p.NodeSelector}, {"namespaceSelector", p.NamespaceSelector},
	} {
		if _, err := ParseExpression(s.text); err != nil {
			return not(ReasonBadSelector, "%s: %s", s.field, err)
		}
	}
	for _, r := range p.Regions {
		if p.Encapsulation.Kind == EncapsulationIPIP && r.CIDR.Addr().Is6() {
			return not(ReasonBadEncapsulation,
				"encapsulation ipip carries IPv4 only, and region %s is IPv6: use vxlan or none", r.CIDR)
		}
	}
	switch {
	case p.Deleted:
		return not(ReasonTerminating, "the pool is deleted when its last block is released")
	case p.Disabled:
		return not(ReasonPoolDisabled, "the pool is disabled")
	}
	c := Condition{Type: ConditionAllocatable, True: true, Reason: ReasonOK, Message: "addresses can be allocated"}
	switch {
	case p.ForServices():
		c.Message += " to Services"
	case p.Allows(UseLoadBalancer):
		c.Message += "; LoadBalancer of allowedUses has no effect next to other uses: create another pool for Services"
	}
	return c
}

// overlap returns the condition of a pool of the cluster's network, given the older pools.
func overlap(p AddressPool, older []AddressPool, c Condition) Condition {
	for _, o := range older {
		if !o.IsClusterPool() {
			continue
		}
		for _, r := range p.Regions {
			for _, other := range o.Regions {
				if r.CIDR.Overlaps(other.CIDR) {
					return Condition{
						Type: ConditionAllocatable, Reason: ReasonCIDROverlap,
						Message: fmt.Sprintf("region %s overlaps with region %s of pool %s, which is older", r.CIDR, other.CIDR, o.Name),
					}
				}
			}
		}
	}
	return c
}
