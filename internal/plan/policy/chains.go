// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"net/netip"
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

// tierChain evaluates the policies of a tier in order. Their rules are in one chain: "pass" returns from it. Policies whose
// rules all accept have their own, and are merged if many follow each other; many others that do not pass are in groups,
// each with a chain. Then packets of IPv4 and others have chains of their own with the rules that may match them, half of
// all rules in most cases. Accept is what rules that accept do instead, if it is not empty.
func (m *compiler) tierChain(t selectedTier, dir direction, accept string) *chainSpec {
	parts := t.keys()
	if !t.pass {
		parts = append(parts, "deny")
	}
	if accept != "" {
		parts = append(parts, accept)
	}
	name := shortHash(parts...) + dir.suffix()
	end := func(out []rule) []rule {
		if !t.pass {
			out = append(out, rule{verdict: "goto", to: m.denyChain(t.policies, dir)})
		}
		return out
	}
	of := func(only families) *chainSpec {
		return &chainSpec{
			name: chainName(t.tier) + "/" + only.String() + name, policies: t.policies, accept: accept,
			make: func() []rule { return end(m.tierRules(t.policies, dir, accept, only)) },
		}
	}
	return &chainSpec{
		name: chainName(t.tier) + "/" + name, policies: t.policies, accept: accept,
		make: func() []rule {
			if !m.inGroups(t.policies, dir) {
				return end(m.tierRules(t.policies, dir, accept, allFamilies))
			}
			four := addrCondition{addrMatch: addrMatch{prefix: netip.PrefixFrom(netip.IPv4Unspecified(), 0)}}
			return []rule{
				{conditions: []condition{four}, verdict: "goto", to: of(onlyFour)}, {verdict: "goto", to: of(notFour)},
			}
		},
	}
}

// families are those of the packets that a chain is for.
type families int

const (
	allFamilies families = iota
	onlyFour             // IPv4
	notFour              // IPv6, and frames that are not IP
)

func (f families) String() string { return [...]string{"", "4/", "6/"}[f] }

// of returns the rules that may match a packet of the families.
func (f families) of(rules []rule) []rule {
	if f == allFamilies {
		return rules
	}
	return slices.DeleteFunc(slices.Clone(rules), func(r rule) bool {
		six, only := r.family()
		return only && six == (f == onlyFour)
	})
}

// tierRules are the rules of a tier's policies in order, for packets of some families.
func (m *compiler) tierRules(keys []model.PolicyKey, dir direction, accept string, only families) (out []rule) {
	for len(keys) > 0 {
		n := m.alike(keys, dir)
		out = append(out, m.alikeRules(keys[:n], dir, accept, only)...)
		keys = keys[n:]
	}
	return out
}

// inGroups reports whether so many of a tier's policies follow each other without "pass" that they are in groups.
func (m *compiler) inGroups(keys []model.PolicyKey, dir direction) bool {
	for len(keys) > 0 {
		n := m.alike(keys, dir)
		if n > m.apart && m.layout(keys[0], dir) == grouped {
			return true
		}
		keys = keys[n:]
	}
	return false
}

// layout is how the rules of a policy are written in the chain of its tier.
type layout int

const (
	plain   layout = iota // all accept: a chain of its own
	grouped               // may be in a chain of several policies, to which the tier's chain jumps
	passing               // one passes, which returns from the tier's chain: in that chain
)

func (m *compiler) layout(k model.PolicyKey, dir direction) layout {
	switch {
	case accepts(k.Kind):
		return plain
	case slices.ContainsFunc(m.compiled(m.cluster.policies[k], dir), func(r rule) bool { return r.verdict == "return" }):
		return passing
	}
	return grouped
}

// alike returns how many of the first policies have the layout of the first one.
func (m *compiler) alike(keys []model.PolicyKey, dir direction) int {
	first := m.layout(keys[0], dir)
	n := slices.IndexFunc(keys, func(k model.PolicyKey) bool { return m.layout(k, dir) != first })
	if n < 0 {
		n = len(keys)
	}
	return n
}

// alikeRules are the rules of policies with one layout in the chain of their tier.
func (m *compiler) alikeRules(keys []model.PolicyKey, dir direction, accept string, only families) (out []rule) {
	switch how := m.layout(keys[0], dir); {
	case how == plain:
		return m.plainRules(keys, dir)
	case how == grouped && len(keys) > m.apart:
		for len(keys) > 0 {
			n := 1 + slices.IndexFunc(keys, m.endsGroup)
			if n == 0 {
				n = len(keys)
			}
			out = append(out, rule{verdict: "jump", to: m.groupChain(keys[:n], dir, accept, only)})
			keys = keys[n:]
		}
		return out
	}
	return m.orderedRules(keys, dir, only)
}

func (m *compiler) orderedRules(keys []model.PolicyKey, dir direction, only families) (out []rule) {
	for _, k := range keys {
		out = append(out, only.of(m.compiled(m.cluster.policies[k], dir))...)
	}
	return out
}

// endsGroup reports whether a policy is the last one of its group. Its name alone decides, so that one more policy changes
// the chain of one group.
func (m *compiler) endsGroup(k model.PolicyKey) bool {
	sum := sha256.Sum256([]byte(k.String()))
	return binary.BigEndian.Uint32(sum[:])%uint32(m.apart+1) == 0
}

// groupChain has the rules of policies that follow each other in a tier, of which none passes.
func (m *compiler) groupChain(keys []model.PolicyKey, dir direction, accept string, only families) *chainSpec {
	parts := []string{accept}
	for _, k := range keys {
		parts = append(parts, k.String())
	}
	return &chainSpec{
		name: "policies/" + only.String() + shortHash(parts...) + dir.suffix(), policies: keys, accept: accept,
		make: func() []rule { return m.orderedRules(keys, dir, only) },
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
