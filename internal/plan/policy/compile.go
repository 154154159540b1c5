// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"slices"
	"strings"

	"github.com/weft-net/weft/internal/model"
)

// writer writes the rules of one policy in one direction.
type writer struct {
	policy *model.Policy
	dir    direction
	// deny is the chain of what the policy denies, where rules do.
	deny *chainSpec
	out  []rule
}

// compileRules makes rules of nft of the rules of a policy, in their order.
func compileRules(p *model.Policy, dir direction, deny *chainSpec) []rule {
	w := writer{policy: p, dir: dir, deny: deny}
	for i, r := range direct(p, dir).Rules {
		w.rule(i, r)
	}
	return w.out
}

func direct(p *model.Policy, dir direction) model.PolicyDirection {
	if dir == ingress {
		return p.Ingress
	}
	return p.Egress
}

func (w *writer) rule(i int, in model.PolicyRule) {
	base := rule{from: w.policy.PolicyKey, number: i, comment: w.comment(i, in)}
	switch in.Action {
	case model.PolicyDeny:
		base.verdict, base.to = "goto", w.deny
	case model.PolicyPass:
		base.verdict = "return"
	default:
		base.verdict = "accept"
	}
	peers, ports := w.peers(i, in), w.ports(in)
	for _, peer := range peers {
		for _, port := range ports {
			r := base
			r.peer, r.port = peer, port
			w.out = append(w.out, r)
		}
	}
	for _, name := range names(in.Ports) {
		w.named(base, in, peers, name)
	}
}

func (w *writer) comment(i int, in model.PolicyRule) string {
	text := fmt.Sprintf("rule %d", i)
	if in.Name != "" {
		text += " " + in.Name
	}
	if w.policy.Kind == model.KindClusterNetworkPolicy {
		text = w.policy.Name + " " + text
	}
	return cut(text, mostComment)
}

// ports are the questions about ports that are numbers; none when no port is asked for.
func (w *writer) ports(in model.PolicyRule) []portMatch {
	if in.AnyPort {
		return []portMatch{{}}
	}
	switch all := numbers(in.Ports); len(all) {
	case 0:
		return nil
	case 1:
		return []portMatch{{one: all[0]}}
	default:
		return []portMatch{{set: portsSet(all)}}
	}
}

// peers are the questions about the peer's address: at most two sets of pods, two of nodes and two of blocks.
func (w *writer) peers(i int, in model.PolicyRule) []addrMatch {
	if in.AnyPeer {
		return []addrMatch{{}}
	}
	var out []addrMatch
	for _, spec := range []*groupSpec{w.podGroup(in), nodeGroup(in)} {
		if spec == nil {
			continue
		}
		for _, six := range []bool{false, true} {
			out = append(out, addrMatch{dir: w.dir, six: six, set: groupSet(spec, six)})
		}
	}
	for _, six := range []bool{false, true} {
		switch all := rangesOf(blocksOf(in), six); len(all) {
		case 0:
		case 1:
			if p, ok := all[0].prefix(); ok {
				out = append(out, addrMatch{dir: w.dir, six: six, prefix: p})
				continue
			}
			fallthrough
		default:
			name := fmt.Sprintf("block%s/%s%s/%d", family(six), nameOf(w.policy.PolicyKey), w.dir.suffix(), i)
			out = append(out, addrMatch{dir: w.dir, six: six, set: &setSpec{name: strings.ReplaceAll(name, "//", "/"), six: six, ranges: all}})
		}
	}
	return out
}

// named writes the rules for a port that is known by its name, which each receiving pod resolves in its own way.
func (w *writer) named(base rule, in model.PolicyRule, peers []addrMatch, name portName) {
	spec := &groupSpec{networks: w.networks(), port: &name, any: true, local: w.dir == ingress}
	spec.id = groupID(spec, "")
	if pods := w.podGroup(in); pods != nil && w.dir == egress {
		own := &groupSpec{networks: pods.networks, port: &name, terms: pods.terms}
		own.id = groupID(own, pods.id)
		for _, six := range []bool{false, true} {
			r := base
			r.port = portMatch{set: groupSet(own, six)}
			w.out = append(w.out, r)
		}
	}
	for _, peer := range peers {
		if w.dir == egress && peer.set != nil && peer.set.group != nil && peer.set.group.nodes == nil {
			continue // that was just done, in one look
		}
		for _, six := range []bool{false, true} {
			if peer.any() || peer.six == six {
				r := base
				r.peer, r.port = peer, portMatch{set: groupSet(spec, six)}
				w.out = append(w.out, r)
			}
		}
	}
}

func (w *writer) networks() []string {
	if w.policy.Kind != model.KindMultiNetworkPolicy {
		return []string{""}
	}
	return slices.Compact(slices.Sorted(slices.Values(w.policy.Networks)))
}

// podGroup is the group of the pods that a rule's peers select together; nil when none does.
func (w *writer) podGroup(in model.PolicyRule) *groupSpec {
	spec := &groupSpec{networks: w.networks()}
	var ids []string
	for _, p := range in.Peers {
		if p.Pods != nil {
			spec.terms = append(spec.terms, compileTerm(*p.Pods))
			ids = append(ids, p.Pods.String())
		}
	}
	if len(ids) == 0 {
		return nil
	}
	slices.Sort(ids)
	spec.id = groupID(spec, strings.Join(slices.Compact(ids), "\x01"))
	return spec
}

func nodeGroup(in model.PolicyRule) *groupSpec {
	spec := &groupSpec{networks: []string{""}}
	ids := []string{"nodes"}
	for _, p := range in.Peers {
		if p.Nodes != nil {
			spec.nodes = append(spec.nodes, compileSelector(*p.Nodes))
			ids = append(ids, p.Nodes.String())
		}
	}
	if spec.nodes == nil {
		return nil
	}
	slices.Sort(ids[1:])
	spec.id = "nodes/" + short(slices.Compact(ids)...)
	return spec
}

// groupID is what tells groups apart, and the end of the names of their sets. Selected says in words what terms select.
func groupID(g *groupSpec, selected string) string {
	parts := append([]string{selected, fmt.Sprint(g.any, g.local)}, g.networks...)
	if g.port == nil {
		return "pods/" + short(parts...)
	}
	return "named/" + short(append(parts, "port", g.port.name, string(g.port.protocol))...)
}

// groupSet is the set of a group's addresses of one family.
func groupSet(g *groupSpec, six bool) *setSpec {
	kind, hash, _ := strings.Cut(g.id, "/")
	return &setSpec{name: kind + family(six) + "/" + hash, six: six, group: g}
}

func blocksOf(in model.PolicyRule) []model.IPBlock {
	var out []model.IPBlock
	for _, p := range in.Peers {
		if p.Block != nil {
			out = append(out, *p.Block)
		}
	}
	return out
}
