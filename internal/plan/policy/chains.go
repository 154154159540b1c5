// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/weft-net/weft/internal/model"
)

// mostComment is how long nft's comments and log prefixes may be.
const mostComment = 120

// chainSpec says what is in a chain.
type chainSpec struct {
	name string
	// policies are those that the chain is about. When one of them changes, the chain is made again.
	policies []model.PolicyKey
	make     func() []rule
	// denies is set for a chain that ends what the policies deny.
	denies *Denial
}

// Denial says whose denied packets a chain counts.
type Denial struct {
	Direction string
	// Policies are those that deny together: NetworkPolicies, none of which has a rule that accepts. None: the pod of an
	// interface is not known.
	Policies []model.PolicyKey
}

// String is for logs and comments.
func (d Denial) String() string {
	if len(d.Policies) == 0 {
		return "unknown pod " + d.Direction
	}
	var names []string
	for _, p := range d.Policies {
		names = append(names, strings.TrimPrefix(p.Namespace+"/"+p.Name, "/"))
	}
	return string(d.Policies[0].Kind) + " " + strings.Join(names, ",") + " " + d.Direction
}

// headerBytes is as much of a denied packet as is wanted: the headers of IPv6 and of TCP with options.
const headerBytes = 96

// prefix is the denial as one word, by which the reader of the log knows it.
func (d Denial) prefix() string {
	dir := "in"
	if d.Direction == egress.String() {
		dir = "out"
	}
	if len(d.Policies) == 0 {
		return dir + ":unknown"
	}
	var names []string
	for _, p := range d.Policies {
		names = append(names, strings.TrimPrefix(p.Namespace+"/"+p.Name, "/"))
	}
	return cut(dir+":"+string(d.Policies[0].Kind)+":"+strings.Join(names, "+"), mostComment)
}

// policy is a policy and what was made of it.
type policy struct {
	model.Policy
	subject term
	rules   [2][]rule // compiled when they are wanted first
}

// compiled are the rules of a direction.
func (x *Index) compiled(p *policy, dir direction) []rule {
	if p.rules[dir] == nil {
		p.rules[dir] = compileRules(&p.Policy, dir, x.denyChain([]model.PolicyKey{p.PolicyKey}, dir))
	}
	return p.rules[dir]
}

// combination is all the policies that are asked about an endpoint in one direction.
type combination struct {
	admin, baseline []model.PolicyKey // in the order in which they are asked
	plain           []model.PolicyKey // NetworkPolicies or MultiNetworkPolicies
}

func (c combination) empty() bool { return len(c.admin)+len(c.baseline)+len(c.plain) == 0 }

// podsChain is the chain of all endpoints with one combination.
func (x *Index) podsChain(c combination, dir direction) *chainSpec {
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
			out = append(out, rule{verdict: "jump", to: x.tierChain("admin", c.admin, dir)})
		}
		if len(c.plain) > cmp.Or(x.cfg.Apart, usuallyApart) {
			out = append(out, rule{verdict: "jump", to: x.unionChain(c.plain, dir)})
		} else {
			for _, k := range c.plain {
				out = append(out, rule{verdict: "jump", to: x.plainChain(k, dir)})
			}
		}
		switch {
		case len(c.plain) > 0:
			out = append(out, rule{verdict: "goto", to: x.denyChain(c.plain, dir)})
		case len(c.baseline) > 0:
			out = append(out, rule{verdict: "goto", to: x.tierChain("baseline", c.baseline, dir)})
		}
		return out
	}}
}

// tierChain asks the policies of a tier one after the other. All their rules stand in one chain: "pass" returns from it.
func (x *Index) tierChain(tier string, keys []model.PolicyKey, dir direction) *chainSpec {
	var parts []string
	for _, k := range keys {
		parts = append(parts, k.String())
	}
	return &chainSpec{name: tier + "/" + short(parts...) + dir.suffix(), policies: keys, make: func() []rule {
		var out []rule
		for _, k := range keys {
			out = append(out, x.compiled(x.policies[k], dir)...)
		}
		return out
	}}
}

// plainChain holds the exceptions of a NetworkPolicy or MultiNetworkPolicy.
func (x *Index) plainChain(k model.PolicyKey, dir direction) *chainSpec {
	return &chainSpec{name: nameOf(k) + dir.suffix(), policies: []model.PolicyKey{k}, make: func() []rule {
		return x.compiled(x.policies[k], dir)
	}}
}

// denyChain counts, says and drops.
func (x *Index) denyChain(keys []model.PolicyKey, dir direction) *chainSpec {
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
		if g := x.cfg.LogGroup; g > 0 {
			out = append(out, rule{plain: fmt.Sprintf("limit rate 10/second log prefix %q group %d snaplen %d", d.prefix(), g, headerBytes)})
		}
		return append(out, rule{verdict: "counter drop", comment: cut("deny "+d.String(), mostComment)})
	}
	return c
}

// nameOf is how chains and sets call a policy: readable where it is short enough for the kernel.
func nameOf(k model.PolicyKey) string {
	kind := map[model.PolicyKind]string{
		model.KindNetworkPolicy: "np", model.KindClusterNetworkPolicy: "cnp", model.KindMultiNetworkPolicy: "mnp",
	}[k.Kind]
	const most = 180
	parts := slices.DeleteFunc([]string{kind, k.Namespace, k.Name}, func(s string) bool { return s == "" })
	if name := strings.Join(parts, "/"); len(name) <= most {
		return name
	}
	return kind + "/" + short(k.String())
}

func cut(s string, most int) string {
	if len(s) > most {
		return s[:most]
	}
	return s
}
