// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"net/netip"
	"strings"

	"github.com/weft-net/weft/internal/state"
)

// The base chains run before those of most other programs at their hooks, after DNAT: policy is enforced on the pod
// behind a service's address. Traffic from the node to its pods needs no rule: it does not pass the forward hook.
const (
	egressPriority  = -5
	ingressPriority = -4
	// cutPriority is before the kernel tracks connections, and behind the reassembly of fragments.
	cutPriority = -250
	// resumePriority is after all policies, and before the source is translated.
	resumePriority = 99
)

// hook is one base chain: its name, hook and map.
type hook struct {
	name, hook string
	dir        direction
	link       string // iifname or oifname
}

func hooks(p EnforcementPoint) []hook {
	if p.Ports {
		return portHooks()
	}
	if p.node() {
		return []hook{
			{"egress", "forward", egress, "iifname"},
			{"input", "input", egress, "iifname"},
			{"ingress", "forward", ingress, "oifname"},
		}
	}
	// In a pod, packets pass the pod's own interface. Forwarded ones belong to a VM.
	return []hook{
		{"egress", "output", egress, "oifname"},
		{"forward-out", "forward", egress, "oifname"},
		{"ingress", "input", ingress, "iifname"},
		{"forward-in", "forward", ingress, "iifname"},
	}
}

// entry is the input for a table's base chains and the sets of the node's addresses.
type entry struct {
	place   EnforcementPoint
	maps    [2]map[string]string
	dropped *droppedFlows
	// ported: of the node's table, policies are enforced at ports, whose packets also pass its chains.
	ported bool
	host   []state.Chain // of the node's table, the base chains of host endpoints
	self   []netip.Addr
}

// chains returns the base chains that the table needs: none for a direction in which no endpoint is selected.
func (in entry) chains() []state.Chain {
	switch {
	case in.place.Tap != "":
		return in.tapChains()
	case in.place.Device != "" && len(in.maps[ingress])+len(in.maps[egress]) > 0:
		return []state.Chain{{Name: "closed", Hook: "ingress", Device: in.place.Device}} // never written to the kernel
	case in.place.Device != "":
		return nil
	}
	var out []state.Chain
	for _, h := range hooks(in.place) {
		if len(in.maps[h.dir]) == 0 {
			continue
		}
		prio := egressPriority
		if h.dir == ingress {
			prio = ingressPriority
		}
		if in.place.Ports {
			prio = portPriority
		}
		c := state.Chain{Name: h.name, Type: "filter", Hook: h.hook, Priority: prio, Policy: "accept"}
		for _, text := range in.preamble(h) {
			c.Rules = append(c.Rules, state.NftRule{Text: text})
		}
		c.Rules = append(c.Rules, state.NftRule{Text: h.link + " vmap @" + h.dir.String()})
		out = append(out, c)
	}
	if in.ported || len(out)+len(in.host) > 0 && !in.place.Ports {
		out = append(out, in.cutChains()...)
	}
	return append(out, in.host...)
}

// cutChains returns the chains that drop the replies of connections that policy denies now, before connection tracking:
// otherwise a reply to a dropped packet would confirm the connection, or create one in the other direction that policy
// allows. On the node these are also the packets from and to ports of bridges, which pass the IP hooks (br_netfilter).
// When a packet of such a connection, or of a new one with the same ports, has passed all policies, replies pass.
func (in entry) cutChains() []state.Chain {
	rules := in.cutRules()
	if len(rules) == 0 {
		return nil
	}
	chain := func(name, hook string, priority int, rules []string) state.Chain {
		return state.Chain{
			Name: name, Type: "filter", Hook: hook, Priority: priority, Policy: "accept", Rules: rulesOf(rules...),
		}
	}
	out := []state.Chain{
		chain("cut", "prerouting", cutPriority, rules), chain("cut-output", "output", cutPriority, rules),
	}
	var resume []string
	for _, six := range []bool{false, true} {
		if in.dropped.has(droppedSet{six: six}) {
			reply := flowKey(six, true)
			resume = append(resume, "ct state new "+reply+" @"+droppedSet{six: six}.name()+" update @"+resumedSet(six).Name+
				" { "+reply+" timeout "+resumedTime+" }")
		}
	}
	if len(resume) == 0 {
		return out
	}
	return append(out, chain("resume", "postrouting", resumePriority, resume),
		chain("resume-input", "input", resumePriority, resume))
}

// cutRules returns the rules that drop the replies of connections that policy denies now.
func (in entry) cutRules() (out []string) {
	for _, s := range droppedSets() {
		if !in.dropped.has(s) {
			continue
		}
		rule := flowKey(s.six, false) + " @" + s.name() + " "
		if !s.held {
			rule += flowKey(s.six, false) + " != @" + resumedSet(s.six).Name + " "
		}
		out = append(out, rule+deny())
	}
	return out
}

// flowKey is the key of a packet's flow, or of its replies'.
func flowKey(six, reply bool) string {
	if reply {
		return ip(six) + " daddr . " + ip(six) + " saddr . meta l4proto . th dport . th sport"
	}
	return ip(six) + " saddr . " + ip(six) + " daddr . meta l4proto . th sport . th dport"
}

// preamble returns the rules before any policy is evaluated.
func (in entry) preamble(h hook) []string {
	// The kernel also tracks what left by the default route when no pod had the address: an error about an answer that no
	// pod has sent is not related to anything.
	out := trackedRules()
	switch {
	case in.place.Ports:
		out = portPreamble(h.dir)
	case in.place.Tap != "":
		out = tapPreamble(h.dir)
	}
	if in.place.Tap != "" {
		out = append(out, in.cutRules()...)
	}
	if in.place.node() && h.hook == "forward" {
		return out // neighbor discovery is never routed
	}
	// Without neighbor discovery there is no IPv6, policy or not. A hop limit of 255 proves that no router has forwarded
	// the packet (RFC 4861): in a forward chain only bridged packets still have it.
	out = append(out, "icmpv6 type 133-137 ip6 hoplimit 255 accept")
	if in.place.node() {
		return out
	}
	// A switch delivers multicast, neighbor solicitations included, only to ports that reported their groups (RFC 4541).
	// Reports and queries go to groups of the link, with a hop limit of 1 (RFC 2710, 3810). 141 and 142 are inverse
	// neighbor discovery.
	out = append(out, "icmpv6 type 130-132 ip6 hoplimit 1 ip6 daddr ff00::/8 accept",
		"icmpv6 type 143 ip6 hoplimit 1 ip6 daddr ff00::/8 accept", "icmpv6 type 141-142 ip6 hoplimit 255 accept")
	// Leases must be renewed. DHCPv4 does not pass this hook (it uses packet sockets). A DHCPv6 client sends to the group
	// of all servers (RFC 8415, section 14.1); unicast could be any other traffic.
	if h.dir == egress {
		return append(out, "ip6 saddr fe80::/10 ip6 daddr ff02::1:2 udp sport 546 udp dport 547 accept")
	}
	out = append(out, "ip6 daddr fe80::/10 udp sport 547 udp dport 546 accept")
	for _, s := range in.selfSets() { // a node always reaches its own pods
		out = append(out, ip(s.Key == "ipv6_addr")+" saddr @"+s.Name+" accept")
	}
	return out
}

// trackedRules accept the packets of connections that policy has allowed.
func trackedRules() []string {
	return []string{
		"ct state established accept", "ct state related ct direction reply accept",
		"ct state related ct status expected,seen-reply accept",
	}
}

// selfSets returns the node's own addresses as sets, for a pod's table that uses them.
func (in entry) selfSets() []state.Set {
	if in.place.OnNode() || in.place.Device != "" || len(in.maps[ingress]) == 0 {
		return nil
	}
	var out []state.Set
	for _, six := range []bool{false, true} {
		s := state.Set{Name: "self" + family(six), Key: "ipv" + family(six) + "_addr"}
		for _, a := range in.self {
			if a.Is6() == six {
				s.Elements = append(s.Elements, state.Element{Key: []string{a.String()}})
			}
		}
		if len(s.Elements) > 0 {
			out = append(out, s)
		}
	}
	return out
}

func portHooks() []hook {
	return []hook{{"egress", "prerouting", egress, "iifname"}, {"ingress", "postrouting", ingress, "oifname"}}
}

// tapHooks returns the hooks of a tap.
func tapHooks() []hook {
	return []hook{{name: "egress", hook: "egress", dir: egress}, {name: "ingress", hook: "ingress", dir: ingress}}
}

// tapChains returns the base chains of a tap's table, and those that track flows. Both directions have them as soon as
// policy is enforced on one: replies pass the other one.
func (in entry) tapChains() []state.Chain {
	if len(in.maps[ingress])+len(in.maps[egress]) == 0 {
		return nil
	}
	var out []state.Chain
	for _, h := range tapHooks() {
		c := state.Chain{
			Name: h.name, Type: "filter", Hook: h.hook, Device: in.place.Tap, Policy: "accept",
			Rules: rulesOf(in.preamble(h)...),
		}
		if verdict := in.maps[h.dir][in.place.Tap]; verdict != "" {
			c.Rules = append(c.Rules, rulesOf("jump "+strings.TrimPrefix(verdict, "goto "))...)
		}
		c.Rules = append(c.Rules, rulesOf("goto begin"+h.dir.suffix())...)
		out = append(out, c)
	}
	return append(out, tapTrackingChains()...)
}
