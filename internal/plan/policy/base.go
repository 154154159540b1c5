// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"net/netip"
	"strings"

	"github.com/weft-net/weft/internal/state"
)

// The base chains stand before those of most others at their hooks, behind the translation of destinations: what is
// judged is the pod that a service led to. What the node is to its pods needs no rule: that never comes by forward.
const (
	egressPriority  = -5
	ingressPriority = -4
)

// hook is one base chain: what it asks and where.
type hook struct {
	name, hook string
	dir        direction
	link       string // iifname or oifname
}

func hooks(p Place) []hook {
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
	// In a pod a packet comes and goes by the pod's own end. What is forwarded is a virtual machine's.
	return []hook{
		{"egress", "output", egress, "oifname"},
		{"forward-out", "forward", egress, "oifname"},
		{"ingress", "input", ingress, "iifname"},
		{"forward-in", "forward", ingress, "iifname"},
	}
}

// entry is what packets meet first in a table: what its base chains and the node's addresses are made of.
type entry struct {
	place Place
	maps  [2]map[string]string
	cuts  *cuts
	self  []netip.Addr
}

// chains are the base chains that the table needs: none of a direction in which nobody is selected.
func (in entry) chains() []state.Chain {
	switch {
	case in.place.Tap != "":
		return in.tapChains()
	case in.place.Device != "" && len(in.maps[ingress])+len(in.maps[egress]) > 0:
		return []state.Chain{{Name: "closed", Hook: "ingress", Device: in.place.Device}} // nobody writes it
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
	return out
}

// preamble is what is decided before any policy is asked.
func (in entry) preamble(h hook) []string {
	out := []string{"ct state established,related accept"}
	switch {
	case in.place.Ports:
		out = portPreamble(h.dir)
	case in.place.Tap != "":
		out = tapPreamble(h.dir)
	}
	for _, six := range []bool{false, true} {
		if in.cuts.has(six) {
			out = append(out, ip(six)+" saddr . "+ip(six)+" daddr . meta l4proto . th sport . th dport @cut"+family(six)+" drop")
		}
	}
	if in.place.node() && h.hook == "forward" {
		return out // neighbor discovery is never routed
	}
	// Without neighbor discovery there is no IPv6, policy or not. A hop limit of 255 says that no router has forwarded the
	// packet (RFC 4861): in a forward chain only a bridge's own packets still have it.
	out = append(out, "icmpv6 type 133-137 ip6 hoplimit 255 accept")
	if in.place.node() {
		return out
	}
	// A switch delivers multicast, neighbor solicitations included, only to ports that reported their groups (RFC 4541).
	// Reports and queries go to groups of the link, with a hop limit of 1 (RFC 2710, 3810). 141 and 142 are inverse
	// neighbor discovery.
	out = append(out, "icmpv6 type 130-132 ip6 hoplimit 1 ip6 daddr ff00::/8 accept",
		"icmpv6 type 143 ip6 hoplimit 1 ip6 daddr ff00::/8 accept", "icmpv6 type 141-142 ip6 hoplimit 255 accept")
	// An address that is leased must be leased again. DHCPv4 does not come by here (it is spoken below IP). A client asks
	// the group of all servers (RFC 8415, section 14.1): what it would ask one of them could be anything for anybody.
	if h.dir == egress {
		return append(out, "ip6 saddr fe80::/10 ip6 daddr ff02::1:2 udp sport 546 udp dport 547 accept")
	}
	out = append(out, "ip6 daddr fe80::/10 udp sport 547 udp dport 546 accept")
	for _, s := range in.selfSets() { // a node reaches its own pods
		out = append(out, ip(s.Key == "ipv6_addr")+" saddr @"+s.Name+" accept")
	}
	return out
}

// selfSets are the node's own addresses as sets of a pod's table that asks for them.
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

// tapHooks are those of a tap.
func tapHooks() []hook {
	return []hook{{name: "egress", hook: "egress", dir: egress}, {name: "ingress", hook: "ingress", dir: ingress}}
}

// tapChains are the base chains of a tap's table, and those that remember. Both directions have them as soon as one is
// judged: replies come by the other one.
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
	return append(out, tapMemory()...)
}
