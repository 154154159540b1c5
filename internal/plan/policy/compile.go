// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"slices"
	"strings"

	"github.com/weft-net/weft/internal/model"
)

// ruleWriter writes the rules of a policy in one direction.
type ruleWriter struct {
	dir      direction
	networks []string
	blocks   string // the suffix of the names of sets of blocks
	// nets returns the prefixes of the network sets that a term selects; nil: none are known.
	nets func(term) []*model.IPBlock
	// endpoints returns the endpoints of a Service.
	endpoints func(namespace, name string) []element
	// hosts are the host endpoints of the cluster, whose ports have names for Calico's policies. forwards: the policy may
	// select some, and packets that they forward go to pods of other nodes, too.
	hosts    []model.HostEndpoint
	forwards bool
	out      []rule
}

// compileRules compiles the rules of a policy to nft rules, in order. Deny is the chain of denied packets.
func (m *compiler) compileRules(p *model.Policy, dir direction, deny *chainSpec) []rule {
	w := ruleWriter{dir: dir, networks: networksOf(p), nets: m.cluster.selectedNets, endpoints: m.cluster.slices.of}
	if p.Kind.Calico() {
		w.hosts, w.forwards = m.cluster.hosts, p.Kind == model.KindGlobalNetworkPolicy && len(m.cluster.hosts) > 0
	}
	for i, in := range direct(p, dir).Rules {
		in = m.cluster.failClosed(in)
		base := rule{from: p.PolicyKey, number: i, comment: commentOf(p, i, in), verdict: verdictAccept}
		switch in.Action {
		case model.PolicyDeny:
			base.verdict, base.to = "goto", deny
		case model.PolicyPass:
			base.verdict = "return"
		case model.PolicyLog:
			if m.logGroup == 0 {
				continue
			}
			base.verdict, base.logs = logText(p, i, m.logGroup), true
		}
		w.blocks = fmt.Sprintf("%s%s/%d", nameOf(p.PolicyKey), dir.suffix(), i)
		if in.Conditions != nil {
			w.writeConditions(base, in.Conditions)
			continue
		}
		w.write(base, in)
	}
	return w.out
}

// networksOf returns the networks whose addresses a policy's peers stand for.
func networksOf(p *model.Policy) []string {
	if p.Kind != model.KindMultiNetworkPolicy {
		return []string{""}
	}
	return slices.Compact(slices.Sorted(slices.Values(p.Networks)))
}

// write writes one rule of a policy: base has the verdict.
func (w *ruleWriter) write(base rule, in model.PolicyRule) {
	peers, ports := w.peers(in), w.ports(in)
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

func commentOf(p *model.Policy, i int, in model.PolicyRule) string {
	text := fmt.Sprintf("rule %d", i)
	if in.Name != "" {
		text += " " + in.Name
	}
	if !accepts(p.Kind) { // the chain has those of several policies
		text = strings.TrimPrefix(p.Namespace+"/"+p.Name, "/") + " " + text
	}
	return truncate(text, maxComment)
}

// ports returns the matches of numeric ports; none if the rule has none.
func (w *ruleWriter) ports(in model.PolicyRule) []portMatch {
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

// peers returns the matches of the peer's address: at most two sets of pods, two of nodes and two of blocks.
func (w *ruleWriter) peers(in model.PolicyRule) []addrMatch {
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
	blocks := blocksOf(in)
	for _, six := range []bool{false, true} {
		switch all := rangesOf(blocks, six); len(all) {
		case 0:
		case 1:
			if p, ok := all[0].prefix(); ok {
				out = append(out, addrMatch{dir: w.dir, six: six, prefix: p})
				continue
			}
			fallthrough
		default:
			out = append(out, addrMatch{
				dir: w.dir, six: six, set: &setSpec{name: "block" + family(six) + "/" + w.blocks, six: six, ranges: all},
			})
		}
	}
	return out
}

// named writes the rules for a named port, which each receiving pod resolves to its own number.
func (w *ruleWriter) named(base rule, in model.PolicyRule, peers []addrMatch, name portName) {
	spec := &groupSpec{networks: w.networks, port: &name, any: true, local: w.dir == ingress}
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
			continue // written above, as one lookup
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

// podGroup returns the group of all pods that a rule's peers select; nil if no peer selects pods.
func (w *ruleWriter) podGroup(in model.PolicyRule) *groupSpec {
	spec := &groupSpec{networks: w.networks}
	var ids []string
	seen := map[string]bool{}
	for _, p := range in.Peers {
		if p.Pods == nil {
			continue
		}
		if id := p.Pods.String(); !seen[id] {
			seen[id] = true
			spec.terms, ids = append(spec.terms, compileTerm(*p.Pods)), append(ids, id)
		}
	}
	if len(ids) == 0 {
		return nil
	}
	slices.Sort(ids)
	spec.id = groupID(spec, strings.Join(ids, "\x01"))
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
	spec.id = "nodes/" + shortHash(slices.Compact(ids)...)
	return spec
}

// groupID returns a group's identity, which is the suffix of its sets' names. Selected is the text of its terms.
func groupID(g *groupSpec, selected string) string {
	parts := append([]string{selected, fmt.Sprint(g.any, g.local)}, g.networks...)
	if g.port == nil {
		return "pods/" + shortHash(parts...)
	}
	return "named/" + shortHash(append(parts, "port", g.port.name, string(g.port.protocol))...)
}

// groupSet returns the set of a group's addresses of one family.
func groupSet(g *groupSpec, six bool) *setSpec {
	kind, hash, _ := strings.Cut(g.id, "/")
	return &setSpec{name: kind + family(six) + "/" + hash, six: six, group: g}
}

func blocksOf(in model.PolicyRule) []*model.IPBlock {
	var out []*model.IPBlock
	for i := range in.Peers {
		if b := in.Peers[i].Block; b != nil {
			out = append(out, b)
		}
	}
	return out
}

// portsSet returns the set of several port ranges.
func portsSet(ports []portRange) *setSpec {
	parts := make([]string, 0, len(ports))
	for _, p := range ports {
		parts = append(parts, string(p.protocol)+":"+p.String())
	}
	return &setSpec{name: "ports/" + shortHash(parts...), ports: ports}
}
