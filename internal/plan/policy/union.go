// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/weft-net/weft/internal/model"
)

// defaultApart is how many policies of a pod have a chain each before they are merged, how many ordered ones are in the chain
// of their tier before they are in groups, and one less than a group has on average.
const defaultApart = 8

// unionChain merges the accept rules of many policies: all rules with the same ports become one rule with all of their
// peers. NetworkPolicies are additive, so that merging is correct, and a connection costs as much under a thousand
// policies as under one. The price: a change of one policy writes the sets of its ports again.
func unionChain(all map[model.PolicyKey]*policy, keys []model.PolicyKey, dir direction) *chainSpec {
	var parts []string
	for _, k := range keys {
		parts = append(parts, k.String())
	}
	name := "union/" + shortHash(parts...)
	return &chainSpec{name: name + dir.suffix(), policies: keys, make: func() []rule {
		type bundle struct {
			networks []string
			rule     model.PolicyRule
		}
		bundles := map[string]*bundle{}
		for _, k := range keys {
			p := all[k]
			for _, r := range direct(&p.Policy, dir).Rules {
				id := fmt.Sprint(networksOf(&p.Policy)) + " " + portsID(r)
				b := bundles[id]
				if b == nil {
					b = &bundle{
						networksOf(&p.Policy), model.PolicyRule{Action: model.PolicyAccept, AnyPort: r.AnyPort, Ports: r.Ports},
					}
					bundles[id] = b
				}
				b.rule.AnyPeer = b.rule.AnyPeer || r.AnyPeer
				b.rule.Peers = append(b.rule.Peers, r.Peers...)
			}
		}
		var out []rule
		for _, id := range slices.Sorted(maps.Keys(bundles)) {
			b := bundles[id]
			w := ruleWriter{networks: b.networks, dir: dir, blocks: name + dir.suffix() + "/" + shortHash(id)}
			w.write(rule{verdict: verdictAccept, merged: keys, comment: fmt.Sprintf("%d policies", len(keys))}, b.rule)
			out = append(out, w.out...)
		}
		return out
	}}
}

// portsID returns the same text for rules with the same ports.
func portsID(r model.PolicyRule) string {
	if r.AnyPort {
		return "any"
	}
	var parts []string
	for _, n := range numbers(r.Ports) {
		parts = append(parts, string(n.protocol)+":"+n.String())
	}
	for _, n := range names(r.Ports) {
		parts = append(parts, string(n.protocol)+":"+n.name)
	}
	slices.Sort(parts)
	return strings.Join(parts, ",")
}
