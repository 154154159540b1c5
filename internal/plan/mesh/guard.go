// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/state"
)

// GuardTable is the name of the table that protects the tunnels from pods: a tunnel's packet is trusted as its node's,
// and an ordinary UDP socket is enough to forge one.
//
//	input    A tunnel's packet is accepted from a peer alone, at the node's own address, and only with an inner source address
//	         that is the peer's: of its pods, or its own. That is decided before the packet is decapsulated.
//	forward  What is routed for others, pods among them, goes to no node's tunnels. That is decided before masquerading,
//	         which would give it a node's address. Nor is neighbor discovery, which belongs to one link, ever routed.
const GuardTable = "weft-mesh"

// guardPriority is before that of most other programs' chains; a drop is final in any case.
const guardPriority = -10

// IP protocols of encapsulated packets.
const protoIPIP, protoSixInFour = "4", "41"

// guard plans which packets are accepted from the node's tunnels: those of peers, from the peers' and their pods'
// addresses.
type guard struct {
	p        *Planner
	nodes    []model.Node
	unusable map[claim]bool // the nodes' prefixes that are ignored
}

// table returns the nft table: it uses sets of addresses, so that the cost of a packet does not depend on the number of
// peers. Those of senders have no elements.
func (g guard) table(used []encapsulation) state.Table {
	t := state.Table{Family: "inet", Name: GuardTable, Sets: addrSets("peers", nil)}
	var sources senderSets
	var lenient []string
	if len(used) > 0 { // else no rule looks into a packet
		sources = g.senders()
		outside, matches := g.outside()
		relays, relayed := g.relays()
		t.Sets = slices.Concat(t.Sets, addrSets(selfSets, g.tunnelAddrs()), outside, relays, sources.sets())
		lenient = append(matches, relayed...)
	}
	// the chains of protocols without ports
	ended := map[string]string{protoIPIP: "foreign", protoSixInFour: "foreign"}
	var ports []string
	tunnels := map[string]string{}
	for _, e := range used {
		if e.port == 0 {
			ended[protoIPIP] = e.name
		} else {
			port := strconv.Itoa(int(e.port))
			ports, tunnels[port] = append(ports, port), e.name
		}
		t.Chains = append(t.Chains, e.chains(sources, lenient, g.atSelf())...)
	}
	// A comparison costs less than a lookup: most packets are TCP or go to another port, and there is rarely more
	// than one.
	input, forward := rules("meta l4proto tcp accept"), rules("meta l4proto tcp accept")
	switch len(ports) {
	case 0:
		forward = append(forward, rules("meta l4proto udp accept")...)
	case 1:
		input = append(input, rules("udp dport "+ports[0]+" goto "+tunnels[ports[0]])...)
		forward = append(forward, rules("udp dport != "+ports[0]+" accept", "udp dport "+ports[0]+" goto tunnels")...)
	default:
		arriving, own := verdicts("arriving", "inet_service"), state.Set{Name: "ports", Key: "inet_service"}
		for _, port := range ports {
			arriving.Elements = append(arriving.Elements, state.Element{
				Key: []string{port}, Val: []string{"goto " + tunnels[port]},
			})
			own.Elements = append(own.Elements, state.Element{Key: []string{port}})
		}
		t.Sets = append(t.Sets, arriving, own)
		input = append(input, rules("udp dport vmap @arriving")...)
		forward = append(forward, rules("udp dport != @ports accept", "udp dport @ports goto tunnels")...)
	}
	for _, protocol := range []string{protoIPIP, protoSixInFour} {
		input = append(input, rules("meta l4proto "+protocol+" goto "+ended[protocol])...)
		forward = append(forward, rules("meta l4proto "+protocol+" goto tunnels")...)
	}
	forward = append(forward, rules("icmpv6 type 133-137 ip6 hoplimit != 255 counter drop")...)
	t.Chains = append(t.Chains,
		state.Chain{Name: "foreign", Rules: g.foreign()},
		state.Chain{Name: "tunnels", Rules: rules(
			"ip saddr @peers4 accept", "ip daddr @peers4 counter drop", "ip6 saddr @peers6 accept",
			"ip6 daddr @peers6 counter drop")},
		state.Chain{Name: "input", Type: "filter", Hook: "input", Priority: guardPriority, Policy: "accept", Rules: input},
		state.Chain{
			Name: "forward", Type: "filter", Hook: "forward", Priority: guardPriority, Policy: "accept", Rules: forward,
		},
	)
	return t
}

// selfSets are the sets of self's addresses at which tunnels end.
const selfSets = "self"

// guardsTunnels reports whether the guard's table has rules for what is inside of tunnels, and sets for these.
func (t *Topology) guardsTunnels() bool {
	return slices.ContainsFunc(t.guardSets(), func(s state.Set) bool { return s.Name == selfSets+"4" })
}

// foreign returns the rules for tunnel protocols that the mesh does not use: the administrator's own tunnels to the
// node are accepted, but none from pods.
func (g guard) foreign() []state.NftRule {
	out := rules("ip saddr @peers4 accept", "ip6 saddr @peers6 accept")
	var links []string
	for _, family := range families() {
		if u, ok := g.p.underlay[family]; ok && !slices.Contains(links, u.Link) {
			links = append(links, u.Link)
			out = append(out, rules("iifname "+strconv.Quote(u.Link)+" accept")...)
		}
	}
	return append(out, rules("counter drop")...)
}

// atSelf returns rules that drop packets to other than self's own addresses: by comparison if a family has only one, as
// is usual.
func (g guard) atSelf() []state.NftRule {
	var out []state.NftRule
	addrs := g.tunnelAddrs()
	for i, ip := range []string{"ip", "ip6"} {
		own := slices.DeleteFunc(slices.Clone(addrs), func(a netip.Addr) bool { return a.Is6() != (i == 1) })
		match := " daddr != @self" + strconv.Itoa(4+2*i)
		if len(own) == 1 {
			match = " daddr != " + own[0].String()
		}
		out = append(out, rules(ip+match+" counter drop")...)
	}
	return out
}

// chains returns the chains of an encapsulation, by the family of the inner packet.
func (e encapsulation) chains(from senderSets, lenient []string, atSelf []state.NftRule) []state.Chain {
	head := append(rules(e.acceptForeign...), atSelf...)
	var out []state.Chain
	for i, in := range e.inner {
		if in.source == "" {
			continue
		}
		ip, version := "ip", "4"
		if i == 1 {
			ip, version = "ip6", "6"
		}
		chain := state.Chain{Name: e.name + version}
		for _, bits := range slices.Backward(from.bits(i)) {
			// pods' prefixes before single addresses: most packets are from pods
			mask := ""
			if bits < 32 || i == 1 && bits < 128 {
				mask = " & " + maskOf(bits, i == 1).String()
			}
			chain.Rules = append(chain.Rules,
				rules(fmt.Sprintf("%s saddr . %s%s @%s accept", ip, in.source, mask, sourcesName(i, bits)))...)
		}
		for _, match := range lenient {
			chain.Rules = append(chain.Rules, rules(fmt.Sprintf(match, ip, version, in.source, in.destination))...)
		}
		chain.Rules = append(chain.Rules, rules("counter drop")...)
		out = append(out, chain)
		if in.protocol == "" {
			return append(out, state.Chain{Name: e.name, Rules: append(head, rules("goto "+chain.Name)...)})
		}
		head = append(head, rules(in.protocol+" goto "+chain.Name)...)
	}
	return append(out, state.Chain{Name: e.name, Rules: append(head, rules("counter drop")...)})
}

// tunnelAddrs returns self's own addresses, at which tunnels end.
func (g guard) tunnelAddrs() []netip.Addr {
	out := addrsOf(g.p.self)
	for _, family := range families() {
		if u, ok := g.p.underlay[family]; ok && !slices.Contains(out, u.Address) {
			out = append(out, u.Address)
		}
	}
	return out
}

// masqueraded reports whether all pods are masqueraded: then no reply comes from an address outside of the cluster.
func (g guard) masqueraded() bool {
	if len(g.p.pools.all) > 0 {
		return !slices.ContainsFunc(g.p.pools.all, func(o model.AddressPool) bool { return !o.NATOutgoing })
	}
	return len(g.p.cfg.Masquerade) > 0
}

// cluster returns the addresses that never count as outside of the cluster.
func (g guard) cluster() []netip.Prefix {
	own := clusterPrefixes(g.p.cfg, g.nodes, g.p.pools)
	for _, a := range g.tunnelAddrs() {
		own = append(own, netip.PrefixFrom(a, a.BitLen()))
	}
	return append(own, netip.MustParsePrefix("169.254.0.0/16"), netip.MustParsePrefix("fe80::/10"))
}

// outside returns the sets and rules that accept packets from outside of the cluster through a peer; none if pods are
// masqueraded.
func (g guard) outside() ([]state.Set, []string) {
	hidden := g.masqueraded()
	if hidden && len(g.p.cfg.NoMasquerade) == 0 {
		return nil, nil
	}
	own := g.cluster()
	sets, match := prefixSets("cluster", own), "%[1]s saddr @peers%[2]s %[3]s != @cluster%[2]s"
	if hidden {
		sets, match = append(sets, prefixSets("keep", g.p.cfg.NoMasquerade)...), match+" %[3]s @keep%[2]s"
	}
	return sets, []string{match + " accept"}
}

func sourcesName(six, bits int) string {
	return fmt.Sprintf("sources%d/%d", 4+2*six, bits)
}

// maskOf returns the netmask of a prefix length as an address.
func maskOf(bits int, six bool) netip.Addr {
	all := netip.AddrFrom4([4]byte{255, 255, 255, 255})
	if six {
		all = netip.AddrFrom16([16]byte{255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255})
	}
	p, _ := all.Prefix(bits)
	return p.Addr()
}

// addrSets returns two sets of single addresses, one for each family.
func addrSets(name string, addrs []netip.Addr) []state.Set {
	sets := []state.Set{{Name: name + "4", Key: "ipv4_addr"}, {Name: name + "6", Key: "ipv6_addr"}}
	for _, a := range addrs {
		s := &sets[0]
		if a.Is6() {
			s = &sets[1]
		}
		s.Elements = append(s.Elements, state.Element{Key: []string{a.String()}})
	}
	return sets
}

// verdicts returns a verdict map; pairs are keys and verdicts in turn.
func verdicts(name, key string, pairs ...string) state.Set {
	s := state.Set{Name: name, Key: key, Data: "verdict"}
	for i := 0; i+1 < len(pairs); i += 2 {
		s.Elements = append(s.Elements, state.Element{Key: []string{pairs[i]}, Val: []string{pairs[i+1]}})
	}
	return s
}

func rules(texts ...string) []state.NftRule {
	var out []state.NftRule
	for _, text := range texts {
		out = append(out, state.NftRule{Text: text})
	}
	return out
}
