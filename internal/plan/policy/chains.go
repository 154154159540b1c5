// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"

	"github.com/weft-net/weft/internal/model"
)

// compiler compiles policies to chains. Its only state is a cache: a policy's rules are compiled when they are first
// used, and kept until the policy changes.
type compiler struct {
	cluster  *cluster
	logGroup int
	apart    int
	rules    map[*policy]*[2][]rule
}

func newCompiler(c *cluster, logGroup, apart int) *compiler {
	return &compiler{cluster: c, logGroup: logGroup, apart: cmp.Or(apart, defaultApart), rules: map[*policy]*[2][]rule{}}
}

// compiled returns the rules of a policy in a direction.
func (m *compiler) compiled(p *policy, dir direction) []rule {
	all := m.rules[p]
	if all == nil {
		all = &[2][]rule{}
		m.rules[p] = all
	}
	if all[dir] == nil {
		all[dir] = m.compileRules(&p.Policy, dir, m.denyChain([]model.PolicyKey{p.PolicyKey}, dir))
	}
	return all[dir]
}

// forget drops the cached rules of a policy, which may be nil.
func (m *compiler) forget(p *policy) { delete(m.rules, p) }

// chainOf returns the chain for a subject's packets; nil: no policy selects it.
func (m *compiler) chainOf(on subject, dir direction) *chainSpec {
	if m.cluster.mightSelect(on, dir) {
		return m.denyChain(nil, dir)
	}
	if on.pod == nil {
		return nil
	}
	if c := m.cluster.combination(on, dir); !c.empty() {
		return m.podsChain(c, dir)
	}
	return nil
}

// podsChain returns the chain of all endpoints with one combination.
func (m *compiler) podsChain(c combination, dir direction) *chainSpec {
	return &chainSpec{name: "pods/" + shortHash(c.parts()...) + dir.suffix(), make: func() []rule {
		var out []rule
		for i, t := range c {
			switch {
			case t.plain() && !t.pass:
				out = append(out, m.plainRules(t.policies, dir)...)
				return append(out, rule{verdict: "goto", to: m.denyChain(t.policies, dir)})
			case i == len(c)-1 && t.name == "kube-baseline":
				out = append(out, rule{verdict: "goto", to: m.tierChain(t, dir, "")})
			default:
				out = append(out, rule{verdict: "jump", to: m.tierChain(t, dir, "")})
			}
		}
		return out
	}}
}

// parts are equal for equal combinations. Without Calico's policies they are those of all versions, so that an update
// writes no chain again.
func (c combination) parts() (parts []string) {
	if names := []model.PolicyTier{"kube-admin", model.TierDefault, "kube-baseline"}; c.usual(names) {
		for _, name := range names {
			if i := slices.IndexFunc(c, func(t selectedTier) bool { return t.name == name }); i >= 0 {
				parts = append(parts, c[i].keys()...)
			}
			parts = append(parts, "")
		}
		return parts
	}
	for _, t := range c {
		parts = append(append(parts, string(t.name), strconv.FormatBool(t.pass)), t.keys()...)
	}
	return parts
}

// usual reports whether the combination has no policy of Calico's, and only these tiers, in this order and as they are
// without Tier objects.
func (c combination) usual(names []model.PolicyTier) bool {
	last := -1
	return !slices.ContainsFunc(c, func(t selectedTier) bool {
		before := last
		last = slices.Index(names, t.name)
		return last <= before || t.pass == (t.name == model.TierDefault) ||
			slices.ContainsFunc(t.policies, func(k model.PolicyKey) bool { return k.Kind.Calico() })
	})
}

func (t selectedTier) keys() (out []string) {
	for _, k := range t.policies {
		out = append(out, k.String())
	}
	return out
}

// plainRules lead to the chains of policies whose rules all accept. Many are merged.
func (m *compiler) plainRules(keys []model.PolicyKey, dir direction) (out []rule) {
	if len(keys) > m.apart {
		return []rule{{verdict: "jump", to: unionChain(m.cluster.policies, keys, dir)}}
	}
	for _, k := range keys {
		out = append(out, rule{verdict: "jump", to: m.plainChain(k, dir)})
	}
	return out
}

// tierChain evaluates the policies of a tier in order. Their rules are in one chain: "pass" returns from it. Only those
// whose rules all accept have their own, and are merged if many follow each other. Accept is what rules that accept do
// instead, if it is not empty.
func (m *compiler) tierChain(t selectedTier, dir direction, accept string) *chainSpec {
	parts := t.keys()
	if !t.pass {
		parts = append(parts, "deny")
	}
	if accept != "" {
		parts = append(parts, accept)
	}
	return &chainSpec{
		name: chainName(t.tier) + "/" + shortHash(parts...) + dir.suffix(), policies: t.policies, accept: accept,
		make: func() []rule {
			var out []rule
			for rest := t.policies; len(rest) > 0; {
				n := slices.IndexFunc(rest, func(k model.PolicyKey) bool { return !accepts(k.Kind) })
				switch n {
				case 0:
					out = append(out, m.compiled(m.cluster.policies[rest[0]], dir)...)
					rest = rest[1:]
					continue
				case -1:
					n = len(rest)
				}
				out = append(out, m.plainRules(rest[:n], dir)...)
				rest = rest[n:]
			}
			if !t.pass {
				out = append(out, rule{verdict: "goto", to: m.denyChain(t.policies, dir)})
			}
			return out
		},
	}
}

// chainName begins the names of a tier's chains.
func chainName(t tier) string {
	switch t.name {
	case "kube-admin":
		return "admin"
	case "kube-baseline":
		return "baseline"
	}
	return "tier/" + truncate(string(t.name), maxComment)
}

// plainChain has the accept rules of a NetworkPolicy or MultiNetworkPolicy.
func (m *compiler) plainChain(k model.PolicyKey, dir direction) *chainSpec {
	return &chainSpec{name: nameOf(k) + dir.suffix(), policies: []model.PolicyKey{k}, make: func() []rule {
		return m.compiled(m.cluster.policies[k], dir)
	}}
}

// denyChain counts, logs and drops.
func (m *compiler) denyChain(keys []model.PolicyKey, dir direction) *chainSpec {
	d := &Denial{Direction: dir.String(), Policies: keys}
	c := &chainSpec{denies: d}
	switch len(keys) {
	case 0:
		c.name = "deny/unknown" + dir.suffix()
	case 1:
		c.name = "deny/" + nameOf(keys[0]) + dir.suffix()
	default:
		var parts []string
		for _, k := range keys {
			parts = append(parts, k.String())
		}
		c.name = "deny/" + shortHash(parts...) + dir.suffix()
	}
	c.make = func() []rule {
		var out []rule
		if g := m.logGroup; g > 0 {
			out = append(out, rule{
				plain: fmt.Sprintf("limit rate 10/second log prefix %q group %d snaplen %d", d.prefix(), g, headerBytes),
			})
		}
		return append(out, rule{verdict: "counter " + deny(), comment: truncate("deny "+d.String(), maxComment)})
	}
	return c
}
