// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"cmp"
	"fmt"

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
		all[dir] = compileRules(&p.Policy, dir, m.denyChain([]model.PolicyKey{p.PolicyKey}, dir))
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
	var parts []string
	for _, list := range [][]model.PolicyKey{c.admin, c.plain, c.baseline} {
		for _, k := range list {
			parts = append(parts, k.String())
		}
		parts = append(parts, "")
	}
	return &chainSpec{name: "pods/" + shortHash(parts...) + dir.suffix(), make: func() []rule {
		var out []rule
		if len(c.admin) > 0 {
			out = append(out, rule{verdict: "jump", to: m.tierChain("admin", c.admin, dir)})
		}
		if len(c.plain) > m.apart {
			out = append(out, rule{verdict: "jump", to: unionChain(m.cluster.policies, c.plain, dir)})
		} else {
			for _, k := range c.plain {
				out = append(out, rule{verdict: "jump", to: m.plainChain(k, dir)})
			}
		}
		switch {
		case len(c.plain) > 0:
			out = append(out, rule{verdict: "goto", to: m.denyChain(c.plain, dir)})
		case len(c.baseline) > 0:
			out = append(out, rule{verdict: "goto", to: m.tierChain("baseline", c.baseline, dir)})
		}
		return out
	}}
}

// tierChain evaluates the policies of a tier in order. All their rules are in one chain: "pass" returns from it.
func (m *compiler) tierChain(tier string, keys []model.PolicyKey, dir direction) *chainSpec {
	var parts []string
	for _, k := range keys {
		parts = append(parts, k.String())
	}
	return &chainSpec{name: tier + "/" + shortHash(parts...) + dir.suffix(), policies: keys, make: func() []rule {
		var out []rule
		for _, k := range keys {
			out = append(out, m.compiled(m.cluster.policies[k], dir)...)
		}
		return out
	}}
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
		return append(out, rule{verdict: "counter drop", comment: truncate("deny "+d.String(), maxComment)})
	}
	return c
}
