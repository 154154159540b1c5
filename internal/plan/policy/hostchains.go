// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/plan/policy/hostendpoint"
	"github.com/weft-net/weft/internal/state"
)

// stage is where policies act at a host endpoint.
type stage int

const (
	// stageLocal: packets of the node's own processes. stageForward: packets that the node forwards.
	stageLocal stage = iota
	stageForward
	// stagePreDNAT: before the destination is translated. stageUntracked: before, and without, connection tracking.
	stagePreDNAT
	stageUntracked
)

func (s stage) String() string {
	return [...]string{"local", "forward", "prednat", "untracked"}[s]
}

// has reports whether a policy acts in the stage.
func (s stage) has(p model.HostScope) bool {
	switch s {
	case stageForward:
		return p.ApplyOnForward && !p.Only()
	case stagePreDNAT:
		return p.PreDNAT && !p.DoNotTrack
	case stageUntracked:
		return p.DoNotTrack
	}
	return !p.Only()
}

// acceptAt is what rules that accept do in a stage; empty: they accept.
func acceptAt(s stage) string {
	switch s {
	case stagePreDNAT:
		return fmt.Sprintf("meta mark set meta mark | 0x%08x accept", allowedBit)
	case stageUntracked:
		return "notrack accept"
	}
	return ""
}

// allowedBit marks a packet that a policy has accepted before the destination was translated: later policies of the host
// endpoint of the interface where it came in are skipped.
const allowedBit = 0x10000000

// Priorities of the base chains of host endpoints. Those of packets with their final addresses come after pods'.
const (
	hostPriority       = -3
	hostOutPriority    = -2 // where a packet is forwarded, after that of the interface where it came in
	translatePriority  = -150
	untrackedPriority  = -300
	workloadsChain     = "workloads"
	tunnelsChain       = "tunnels"
	endpointToHostName = "defaultEndpointToHostAction"
)

// hostCombination returns the policies that act in a stage at a host endpoint.
func (c *cluster) hostCombination(h model.HostEndpoint, s stage, dir direction) combination {
	var selected []*policy
	for _, p := range c.wide {
		if p.Kind == model.KindGlobalNetworkPolicy && s.has(p.Host) && direct(&p.Policy, dir).On &&
			p.subject.endpoints != nil && p.subject.endpoints.Matches(hostView(h)) {
			selected = append(selected, p)
		}
	}
	out := c.byTier(selected)
	if s == stagePreDNAT || s == stageUntracked {
		for i := range out {
			out[i].pass = true // packets are evaluated again
		}
	}
	return out
}

// hostChain returns the chain of a host endpoint; nil: everything is allowed. Accept is what rules that accept do instead.
func (h *hosts) hostChain(p hostendpoint.Placed, s stage, dir direction, accept string) *chainSpec {
	c := h.cluster.hostCombination(p.HostEndpoint, s, dir)
	if c.empty() && (s != stageLocal || p.Allows) {
		return nil
	}
	parts := []string{p.Name, s.String(), strconv.FormatBool(p.Allows), accept}
	for _, t := range c {
		parts = append(append(parts, string(t.name), strconv.FormatBool(t.pass)), t.keys()...)
	}
	var failsafe *chainSpec
	if s != stageForward {
		failsafe = h.failsafeChain(s == stageUntracked, dir)
		parts = append(parts, failsafe.name)
	}
	return &chainSpec{name: "host/" + shortHash(parts...) + dir.suffix(), make: func() (out []rule) {
		if failsafe != nil {
			out = append(out, rule{verdict: "jump", to: failsafe})
		}
		for _, t := range c {
			out = append(out, rule{verdict: "jump", to: h.compiler.tierChain(t, dir, accept)})
		}
		switch {
		case s != stageLocal:
		case p.Allows:
			out = append(out, rule{verdict: verdictAccept, comment: "profile"})
		default:
			out = append(out, rule{verdict: "goto", to: h.compiler.denyChain([]model.PolicyKey{
				{Kind: model.KindHostEndpoint, Name: p.Name},
			}, dir)})
		}
		return out
	}}
}

// failsafeChain accepts what no policy can deny, before all policies. Where connections are not tracked, their answers too.
func (h *hosts) failsafeChain(replies bool, dir direction) *chainSpec {
	there, back := *h.effective.Inbound, *h.effective.Outbound
	if dir == egress {
		there, back = back, there
	}
	rules := hostendpoint.Rules(there, dir == ingress, false)
	if replies {
		rules = append(rules, hostendpoint.Rules(back, dir == ingress, true)...)
	}
	name := "failsafe/" + shortHash(fmt.Sprint(there), fmt.Sprint(back), strconv.FormatBool(replies)) + dir.suffix()
	return &chainSpec{name: name, make: func() []rule {
		w := ruleWriter{dir: dir, networks: []string{""}}
		for i, r := range rules {
			w.blocks = name + "/" + strconv.Itoa(i)
			w.writeConditions(rule{verdict: verdictAccept, comment: "failsafe"}, r.Conditions)
		}
		return w.out
	}}
}

// tunnelChain accepts the mesh's packets between nodes.
func (h *hosts) tunnelChain(dir direction) *chainSpec {
	return &chainSpec{name: tunnelsChain + dir.suffix(), make: func() (out []rule) {
		nodes := nodeGroup(model.PolicyRule{Peers: []model.PolicyPeer{{Nodes: &model.Selector{}}}})
		for _, six := range []bool{false, true} {
			peer := addrCondition{addrMatch: addrMatch{dir: dir, six: six, set: groupSet(nodes, six)}}
			for _, t := range h.tunnels {
				var protocol condition = protocolCondition{number: t.Number}
				if t.Port != 0 {
					protocol = portCondition{portMatch: portMatch{one: portRange{model.UDP, t.Port, t.Port}}}
				}
				out = append(out, rule{conditions: []condition{peer, protocol}, verdict: verdictAccept, comment: "mesh"})
			}
		}
		return out
	}}
}

// workloadChain decides about packets between the node and its own pods, which host endpoints are not about.
func (h *hosts) workloadChain(dir direction) *chainSpec {
	drops := dir == ingress && h.effective.EndpointToHost == model.EndpointToHostDrop
	name := workloadsChain + dir.suffix()
	if drops {
		name = workloadsChain + "-drop" + dir.suffix()
	}
	return &chainSpec{name: name, make: func() []rule {
		links := slices.Clone(h.links)
		of := rule{
			conditions: []condition{linkCondition{dir, &setSpec{name: "workloads", links: &links}}}, verdict: verdictAccept,
		}
		if drops {
			of.verdict, of.to = "goto", h.compiler.denyChain([]model.PolicyKey{
				{Kind: model.KindFelixConfiguration, Name: endpointToHostName},
			}, dir)
		}
		return []rule{of}
	}}
}

// shims returns the node's interfaces by which it reaches macvlans of its pods, sorted.
func (h *hosts) shims() (out []string) {
	for _, i := range h.interfaces {
		if strings.HasPrefix(i.Name, state.HostShimPrefix) {
			out = append(out, i.Name)
		}
	}
	slices.Sort(out)
	return out
}

// linkCondition matches the interface where a packet comes in, or leaves.
type linkCondition struct {
	dir direction
	set *setSpec
}

func (c linkCondition) String() string {
	return [...]string{"iifname", "oifname"}[c.dir] + " @" + c.set.name
}

func (c linkCondition) sets() []*setSpec { return []*setSpec{c.set} }

// matches never: a flow does not have its interfaces.
func (linkCondition) matches(*walker, Flow) (set, found string, ok bool) { return "", "", false }

// hostWriter writes the base chains of this node's host endpoints, and collects the chains that they lead to.
type hostWriter struct {
	*hosts
	used []*chainSpec
}

// lead returns a statement that leads to a chain.
func (w *hostWriter) lead(verb string, c *chainSpec) string {
	if !slices.ContainsFunc(w.used, func(o *chainSpec) bool { return o.name == c.name }) {
		w.used = append(w.used, c)
	}
	return verb + " " + c.name
}

// write returns the base chains: none for a hook at which everything is allowed.
func (w *hostWriter) write() (out []state.Chain) {
	add := func(name, hook string, priority int, rules []string) {
		if rules != nil {
			out = append(out, state.Chain{
				Name: name, Type: "filter", Hook: hook, Priority: priority, Policy: "accept", Rules: rulesOf(rules...),
			})
		}
	}
	add("host-untracked", "prerouting", untrackedPriority, w.dispatch(stageUntracked, ingress, ""))
	add("host-untracked-out", "output", untrackedPriority, w.dispatch(stageUntracked, egress, ""))
	add("host-prednat", "prerouting", translatePriority, w.dispatch(stagePreDNAT, ingress, ""))
	add("host-input", "input", hostPriority, w.dispatch(stageLocal, ingress, ""))
	add("host-output", "output", hostPriority, w.dispatch(stageLocal, egress, ""))
	// The interface by which a packet leaves is known for certain only after its destination is translated.
	add("host-translated", "postrouting", translatePriority,
		w.dispatch(stageLocal, egress, "ct status dnat fib saddr type local "))
	add("host-forward", "forward", hostPriority, w.dispatch(stageForward, ingress, ""))
	add("host-forward-out", "forward", hostOutPriority, w.dispatch(stageForward, egress, ""))
	return out
}

// dispatch returns the rules of a base chain, which lead to the chain of the host endpoint of the packet's interface; nil:
// none has a chain. Only are further conditions. What a policy without connection tracking has accepted is accepted.
func (w *hostWriter) dispatch(s stage, dir direction, only string) []string {
	link := [...]string{"iifname", "oifname"}[dir]
	var rules []string
	needed := false
	for _, p := range w.placed {
		var c, again *chainSpec
		if s != stageUntracked || p.Interface != "" { // Calico does not have untracked policies for all interfaces either
			c = w.hostChain(p, s, dir, acceptAt(s))
		}
		if p.Interface != "" && only == "" && (s == stageLocal || s == stagePreDNAT || s == stageForward && dir == ingress) {
			again = w.hostChain(p, stageUntracked, dir, "")
		}
		needed = needed || c != nil
		at := only
		if p.Interface != "" {
			at += link + ` "` + p.Interface + `" `
		}
		if again != nil && c != nil {
			rules = append(rules, at+"ct state untracked "+w.lead("jump", again))
		}
		switch {
		case c != nil:
			rules = append(rules, at+w.lead("goto", c))
		case p.Interface != "":
			rules = append(rules, at+verdictAccept)
		}
	}
	drops := s == stageLocal && dir == ingress && w.effective.EndpointToHost == model.EndpointToHostDrop
	if !needed && !drops {
		return nil
	}
	return append(w.before(s, dir, only), rules...)
}

// before returns the rules before those of host endpoints.
func (w *hostWriter) before(s stage, dir direction, only string) (out []string) {
	if s != stageUntracked {
		out = trackedRules()
	}
	if s != stageForward {
		out = append(out, onLinkRules()...)
	}
	if len(w.tunnels) > 0 && s != stageForward {
		out = append(out, w.lead("jump", w.tunnelChain(dir)))
	}
	switch {
	case dir == ingress && (s == stageLocal || s == stageForward):
		out = append(out, bitSet(allowedBit))
	case s == stageLocal && only == "":
		out = append(out, "ct status dnat accept") // host-translated
	}
	if s == stageLocal {
		out = append(out, w.lead("jump", w.workloadChain(dir)))
	}
	return out
}

// onLinkRules accept what a node cannot be without on its links: neighbor discovery, multicast listeners and DHCPv6. A hop
// limit of 255 or 1 proves that no router has forwarded the packet.
func onLinkRules() []string {
	return []string{
		"icmpv6 type 133-137 ip6 hoplimit 255 accept",
		"icmpv6 type 130-132 ip6 hoplimit 1 ip6 daddr ff00::/8 accept",
		"icmpv6 type 143 ip6 hoplimit 1 ip6 daddr ff00::/8 accept",
		"ip6 saddr fe80::/10 udp sport 546 udp dport 547 accept", "ip6 daddr fe80::/10 udp sport 547 udp dport 546 accept",
	}
}
