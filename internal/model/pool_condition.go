// SPDX-License-Identifier: Apache-2.0

package model

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Condition is one thing that an object's status says, in Kubernetes' words.
type Condition struct {
	Type    string `json:"type"`
	True    bool   `json:"true"`
	Reason  string `json:"reason"`  // CamelCase, for programs
	Message string `json:"message"` // for people
}

// ConditionAllocatable says that addresses can be had of the pool.
const ConditionAllocatable = "Allocatable"

// The reasons of ConditionAllocatable.
const (
	ReasonOK               = "OK"
	ReasonPoolDisabled     = "PoolDisabled"
	ReasonTerminating      = "Terminating"
	ReasonCIDROverlap      = "CIDROverlap"
	ReasonBadSelector      = "BadSelector"
	ReasonBadEncapsulation = "BadEncapsulation"
	ReasonInvalid          = "Invalid" // the object cannot be understood
)

// PoolConditions says of each pool, by its name, whether further addresses can be had of it, by all pools that there
// are. Whoever has the same pools comes to the same conclusion, so that no node has to be told. Pools of the cluster's
// network must not have an address twice: the older one gives it. Pools of other networks may be two networks' in the
// same addresses.
func PoolConditions(pools []AddressPool) map[string]Condition {
	out := make(map[string]Condition, len(pools))
	byAge := slices.Clone(pools)
	slices.SortFunc(byAge, func(a, b AddressPool) int {
		return cmp.Or(cmp.Compare(a.Created, b.Created), strings.Compare(a.Name, b.Name))
	})
	for i, p := range byAge {
		c := p.condition()
		if c.True && p.OfCluster() {
			c = overlap(p, byAge[:i], c)
		}
		out[p.Name] = c
	}
	return out
}

// Allocatable are the pools of which further addresses can be had.
func Allocatable(pools []AddressPool) []AddressPool {
	conditions := PoolConditions(pools)
	return slices.DeleteFunc(slices.Clone(pools), func(p AddressPool) bool { return !conditions[p.Name].True })
}

// condition is what a pool says of itself.
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
				"encapsulation ipip carries IPv4 only, and region %s is IPv6: take vxlan, or none", r.CIDR)
		}
	}
	switch {
	case p.Deleted:
		return not(ReasonTerminating, "the pool goes when its last block is back")
	case p.Disabled:
		return not(ReasonPoolDisabled, "the pool is disabled")
	}
	return Condition{Type: ConditionAllocatable, True: true, Reason: ReasonOK, Message: "addresses can be had"}
}

// overlap is the condition of a pool of the cluster's network beside those that are older.
func overlap(p AddressPool, older []AddressPool, c Condition) Condition {
	for _, o := range older {
		if !o.OfCluster() {
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
