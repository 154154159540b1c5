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

// combination is all policies that select an endpoint in one direction, by tier, in order of evaluation.
type combination []selectedTier

// selectedTier is the policies of a tier that select an endpoint.
type selectedTier struct {
	tier
	policies []model.PolicyKey
}

func (c combination) empty() bool { return len(c) == 0 }

// selected are all of them, in order of evaluation.
func (c combination) selected() (out []model.PolicyKey) {
	for _, t := range c {
		out = append(out, t.policies...)
	}
	return out
}

// isolates reports whether what no rule matches is denied.
func (c combination) isolates() bool {
	return slices.ContainsFunc(c, func(t selectedTier) bool { return !t.pass })
}

// plain reports whether the tier has only policies whose rules all accept, so that their order does not matter.
func (t selectedTier) plain() bool {
	return !slices.ContainsFunc(t.policies, func(k model.PolicyKey) bool { return !accepts(k.Kind) })
}

// accepts reports whether all rules of a kind's policies accept.
func accepts(k model.PolicyKind) bool {
	return k == model.KindNetworkPolicy || k == model.KindMultiNetworkPolicy
}

// combination returns the policies that select a subject, whose pod is known, in a direction.
func (c *cluster) combination(on subject, dir direction) combination {
	var selected []*policy
	id := on.pod.identity
	plain := id.namespace.policies
	if on.network != "" {
		plain = id.namespace.multis
	}
	for _, p := range plain {
		if direct(&p.Policy, dir).On && p.subject.matches(id) &&
			(on.network == "" || slices.Contains(p.Networks, on.network)) {
			selected = append(selected, p)
		}
	}
	if on.network == "" {
		before := len(selected)
		for _, p := range c.wide {
			if p.governs(dir) && p.subject.matches(id) {
				selected = append(selected, p)
			}
		}
		if len(selected) > before && before > 0 {
			slices.SortFunc(selected, c.tiers.compare)
		}
	}
	return c.byTier(selected)
}

// byTier returns policies in order of evaluation by their tiers.
func (c *cluster) byTier(selected []*policy) (out combination) {
	for _, p := range selected {
		t := c.tiers.of(&p.Policy)
		if n := len(out); n == 0 || out[n-1].tier != t {
			out = append(out, selectedTier{tier: t})
		}
		last := &out[len(out)-1]
		last.policies = append(last.policies, p.PolicyKey)
	}
	return out
}

// governs reports whether one of the cluster's ordered policies affects a direction. Calico's does also without a rule: at
// the end of its tier. Those that are about host endpoints only affect no pod.
func (p *policy) governs(dir direction) bool {
	d := direct(&p.Policy, dir)
	return d.On && p.Kind.Calico() && !p.Host.Only() || len(d.Rules) > 0 && !p.Kind.Calico()
}

// bySourcePort reports whether a rule of the policy is about ports of the source.
func (p *policy) bySourcePort(dir direction) bool {
	return p.Kind.Calico() && slices.ContainsFunc(direct(&p.Policy, dir).Rules, func(r model.PolicyRule) bool {
		return r.Conditions != nil && len(r.Conditions.Source.Ports)+len(r.Conditions.Source.NotPorts) > 0
	})
}

// mightSelect reports whether some policy might select a subject whose pod or namespace is not known yet.
func (c *cluster) mightSelect(on subject, dir direction) bool {
	if on.pod != nil {
		return on.network == "" && slices.ContainsFunc(c.wide, func(p *policy) bool {
			return p.governs(dir) && p.subject.mightMatch(on.pod.identity.namespace)
		})
	}
	s := c.pods.namespaces[on.namespace]
	if on.network != "" {
		return s != nil && slices.ContainsFunc(s.multis, func(p *policy) bool {
			return direct(&p.Policy, dir).On && slices.Contains(p.Networks, on.network)
		})
	}
	return slices.ContainsFunc(c.wide, func(p *policy) bool {
		return p.governs(dir) && (p.subject.namespace == "" || p.subject.namespace == on.namespace)
	}) || s != nil && slices.ContainsFunc(s.policies, func(p *policy) bool { return direct(&p.Policy, dir).On })
}

// mightSelect reports whether the policy, which may be nil, might select a pod, as far as its labels are known.
func (p *policy) mightSelect(on *pod) bool {
	return p != nil && (on == nil || on.identity == nil || !on.identity.namespace.known || p.subject.matches(on.identity))
}
