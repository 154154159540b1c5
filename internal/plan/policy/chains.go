// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"cmp"
	"fmt"

	"github.com/weft-net/weft/internal/model"
)

// compiler makes chains of policies. It has nothing but what it has compiled before: a rule is made when it is wanted
// first, and kept until its policy is another one.
type compiler struct {
	cluster  *cluster
	logGroup int
	apart    int
	rules    map[*policy]*[2][]rule
}

func newCompiler(c *cluster, logGroup, apart int) *compiler {
	return &compiler{cluster: c, logGroup: logGroup, apart: cmp.Or(apart, usuallyApart), rules: map[*policy]*[2][]rule{}}
}

// compiled are the rules of a policy in a direction.
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

// forget drops what was made of a policy, which may be nil.
func (m *compiler) forget(p *policy) { delete(m.rules, p) }

// chainOf is where a subject's packets are judged; nil: nowhere.
func (m *compiler) chainOf(on subject, dir direction) *chainSpec {
	if m.cluster.doubtful(on, dir) {
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

// podsChain is the chain of all endpoints with one combination.
func (m *compiler) podsChain(c combination, dir direction) *chainSpec {
	var parts []string
	for _, list := range [][]model.PolicyKey{c.admin, c.plain, c.baseline} {
		for _, k := range list {
			parts = append(parts, k.String())
		}
		parts = append(parts, "")
	}
	return &chainSpec{name: "pods/" + short(parts...) + dir.suffix(), make: func() []rule {
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

// tierChain asks the policies of a tier one after the other. All their rules stand in one chain: "pass" returns from
// it.
func (m *compiler) tierChain(tier string, keys []model.PolicyKey, dir direction) *chainSpec {
	var parts []string
	for _, k := range keys {
		parts = append(parts, k.String())
	}
	return &chainSpec{name: tier + "/" + short(parts...) + dir.suffix(), policies: keys, make: func() []rule {
		var out []rule
		for _, k := range keys {
			out = append(out, m.compiled(m.cluster.policies[k], dir)...)
		}
		return out
	}}
}

// plainChain holds the exceptions of a NetworkPolicy or MultiNetworkPolicy.
func (m *compiler) plainChain(k model.PolicyKey, dir direction) *chainSpec {
	return &chainSpec{name: nameOf(k) + dir.suffix(), policies: []model.PolicyKey{k}, make: func() []rule {
		return m.compiled(m.cluster.policies[k], dir)
	}}
}

// denyChain counts, says and drops.
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
		c.name = "deny/" + short(parts...) + dir.suffix()
	}
	c.make = func() []rule {
		var out []rule
		if g := m.logGroup; g > 0 {
			out = append(out, rule{
				plain: fmt.Sprintf("limit rate 10/second log prefix %q group %d snaplen %d", d.prefix(), g, headerBytes),
			})
		}
		return append(out, rule{verdict: "counter drop", comment: cut("deny "+d.String(), mostComment)})
	}
	return c
}
