// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"slices"

	"github.com/weft-net/weft/internal/model"
)

// subject is an interface as policies select it.
type subject struct {
	namespace string
	network   string
	pod       *pod // nil: not known
}

// combination is all policies that select an endpoint in one direction.
type combination struct {
	admin, baseline []model.PolicyKey // in order of evaluation
	plain           []model.PolicyKey // NetworkPolicies or MultiNetworkPolicies
}

func (c combination) empty() bool { return len(c.admin)+len(c.baseline)+len(c.plain) == 0 }

// selected are all of them, in order of evaluation.
func (c combination) selected() []model.PolicyKey { return slices.Concat(c.admin, c.plain, c.baseline) }

// combination returns the policies that select a subject, whose pod is known, in a direction.
func (c *cluster) combination(on subject, dir direction) combination {
	var out combination
	id := on.pod.identity
	plain := id.namespace.policies
	if on.network != "" {
		plain = id.namespace.multis
	}
	for _, p := range plain {
		if direct(&p.Policy, dir).On && p.subject.matches(id) &&
			(on.network == "" || slices.Contains(p.Networks, on.network)) {
			out.plain = append(out.plain, p.PolicyKey)
		}
	}
	if on.network != "" {
		return out
	}
	for _, p := range c.wide {
		if len(direct(&p.Policy, dir).Rules) == 0 || !p.subject.matches(id) {
			continue
		}
		if p.Tier == model.TierBaseline {
			out.baseline = append(out.baseline, p.PolicyKey)
		} else {
			out.admin = append(out.admin, p.PolicyKey)
		}
	}
	return out
}

// mightSelect reports whether some policy might select a subject whose pod or namespace is not known yet.
func (c *cluster) mightSelect(on subject, dir direction) bool {
	if on.pod != nil {
		return on.network == "" && slices.ContainsFunc(c.wide, func(p *policy) bool {
			return len(direct(&p.Policy, dir).Rules) > 0 && p.subject.mightMatch(on.pod.identity.namespace)
		})
	}
	s := c.namespaces[on.namespace]
	if on.network != "" {
		return s != nil && slices.ContainsFunc(s.multis, func(p *policy) bool {
			return direct(&p.Policy, dir).On && slices.Contains(p.Networks, on.network)
		})
	}
	return slices.ContainsFunc(c.wide, func(p *policy) bool { return len(direct(&p.Policy, dir).Rules) > 0 }) ||
		s != nil && slices.ContainsFunc(s.policies, func(p *policy) bool { return direct(&p.Policy, dir).On })
}

// mightSelect reports whether the policy, which may be nil, might select a pod, as far as its labels are known.
func (p *policy) mightSelect(on *pod) bool {
	return p != nil && (on == nil || on.identity == nil || !on.identity.namespace.known || p.subject.matches(on.identity))
}
