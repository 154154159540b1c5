// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"slices"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/state"
)

// guardTable names the anti-spoofing table of bridge ports. An endpoint may use only its own MAC and IP addresses, also
// in ARP and neighbor advertisements; it must not send router advertisements, DHCP server replies or tagged frames.
//
// Records of attachments contain the table as it was when they were applied. A table whose sets change gets a new name,
// so that after an upgrade the elements of existing pods stay valid: each table matches its own ports only.
const guardTable = "weft_guard2"

// earlierGuardTable names the table of pods that were attached when the IPv6 addresses were a set of ranges.
const earlierGuardTable = "weft_guard"

// guards reports whether anti-spoofing is enforced at a port: if the configuration enables it or, by default, if the
// addresses are known and either all ports are guarded or the pod has a VM.
func (c bridgeConf) guards(r model.Request, all bool) bool {
	if c.Guard != nil {
		return *c.Guard
	}
	return (all || r.VM() != nil) && c.ipam && len(c.VLANTrunk) == 0
}

// checkGuard rejects anti-spoofing on a trunk port, where it would drop tagged frames.
func (c bridgeConf) checkGuard() error {
	if c.Guard != nil && *c.Guard && len(c.VLANTrunk) > 0 {
		return model.Errorf(model.CodeInvalidConf, "leave one of them out: a guarded port takes no tagged frames",
			"plugin bridge: guard true and vlanTrunk exclude each other")
	}
	return nil
}

// guardTables returns the tables that filter the packets of the container.
func (c bridgeConf) guardTables(r model.Request, veth pair, a addressed, all bool) []state.Table {
	var out []state.Table
	if c.MACSpoofChk {
		out = append(out, SpoofCheck(r.Key(), veth.host.Name, veth.pod.MAC))
	}
	if c.guards(r, all) {
		out = append(out, portGuard(r.Key(), veth.host.Name, veth.pod.MAC, a, !c.ipam))
	}
	return out
}

// portGuard returns the shared table with the elements of one port, or without elements if the port has no name. A port
// without known addresses may use any.
func portGuard(k model.AttachmentKey, port string, mac state.MAC, a addressed, free bool) state.Table {
	mark := elementMark(k)
	ports, unrestricted := state.Set{Name: "ports", Key: "ifname"}, state.Set{Name: "free", Key: "ifname"}
	macs := state.Set{Name: "macs", Key: "ifname . ether_addr"}
	own4 := state.Set{Name: "own4", Key: "ifname . ether_addr . ipv4_addr"}
	own6 := state.Set{Name: "own6", Key: "ifname . ether_addr . ipv6_addr"}
	add := func(s *state.Set, key ...string) {
		s.Elements = append(s.Elements, state.Element{Key: append([]string{port}, key...), Comment: mark})
	}
	if port != "" {
		add(&ports)
		add(&macs, mac.String())
		if free {
			add(&unrestricted)
		}
		for _, ip := range a.ips {
			set := &own4
			if ip.Address.Addr().Is6() {
				set = &own6
			}
			add(set, mac.String(), ip.Address.Addr().String())
		}
	}
	return state.Table{
		Family: "bridge", Name: guardTable, Shared: true,
		Sets: []state.Set{ports, unrestricted, macs, own4, own6}, Chains: append(portErrors(), state.Chain{
			Name: "prerouting", Type: "filter", Hook: "prerouting", Priority: -300, Policy: "accept", Rules: portGuardRules(),
		}),
	}
}

// portErrors returns the chains that restrict ICMP errors to packets that were sent to the endpoint, like errorChains
// on a routed link. Bridged packets are not defragmented: only packets whose ICMP type is visible are matched, and
// errors whose quoted packet is not visible are dropped.
func portErrors() []state.Chain {
	about := func(name string, own ...string) state.Chain {
		c := state.Chain{Name: name}
		for _, match := range append(own, "iifname @free") {
			c.Rules = append(c.Rules, state.NftRule{Text: match + " return"})
		}
		c.Rules = append(c.Rules, state.NftRule{Text: "counter drop"})
		return c
	}
	return []state.Chain{
		about("errors4", "iifname . ether saddr . @th,192,32 @own4"),
		about("errors6", "iifname . ether saddr . @th,256,128 @own6",
			"@th,256,128 & ffc0:: == fe80:: iifname . ether saddr @macs"),
		{Name: "icmp4", Rules: []state.NftRule{{Text: "icmp type 3-5 goto errors4"}, {Text: "icmp type 11-12 goto errors4"}}},
	}
}

// portGuardRules returns the rules, the most frequent packets first. TCP and, over IPv4, UDP packets of a guarded port
// are accepted after one lookup, independent of the number of ports. Link-local addresses are matched by the MAC
// address only and have no elements, because each change of a set of ranges copies the whole set. ICMPv6 types: 134 is
// a router advertisement, 137 a redirect, 136 a neighbor advertisement, 135 from the unspecified address is duplicate
// address detection (a host may use an address without it). Link-local packets with a fragment or routing header are
// dropped, because their ICMPv6 type is not visible. DHCP clients listen on the UDP ports 68 and 546. "ether type" of a
// tagged frame does not match IP.
func portGuardRules() []state.NftRule {
	return []state.NftRule{
		{Text: "ether type ip meta l4proto tcp iifname . ether saddr . ip saddr @own4 accept"},
		{Text: "ether type ip udp dport != 68 iifname . ether saddr . ip saddr @own4 accept"},
		{Text: "ether type ip6 meta l4proto tcp iifname . ether saddr . ip6 saddr @own6 accept"},
		{Text: "iifname != @ports accept"},
		{Text: "udp dport 68 counter drop"},
		{Text: "meta l4proto icmp jump icmp4"},
		{Text: "ether type ip iifname . ether saddr . ip saddr @own4 accept"},
		{Text: "udp dport 546 counter drop"},
		{Text: "ether type ip6 meta l4proto udp iifname . ether saddr . ip6 saddr @own6 accept"},
		{Text: "ether type ip6 ip6 saddr fe80::/10 meta l4proto tcp iifname . ether saddr @macs accept"},
		{Text: "ether type ip6 ip6 saddr fe80::/10 meta l4proto udp iifname . ether saddr @macs accept"},
		{Text: "icmpv6 type 0-127 jump errors6"},
		{Text: "iifname . ether saddr != @macs counter drop"},
		{Text: "ether type 8021q counter drop"},
		{Text: "ether type 8021ad counter drop"},
		{Text: "icmpv6 type 134 counter drop"},
		{Text: "icmpv6 type 137 counter drop"},
		{Text: "ip6 saddr fe80::/10 ip6 nexthdr 43 counter drop"},
		{Text: "ip6 saddr fe80::/10 ip6 nexthdr 44 counter drop"},
		{Text: "ip6 saddr fe80::/10 ip6 nexthdr 60 counter drop"},
		{Text: "iifname @free accept"},
		{Text: "icmpv6 type 136 icmpv6 taddr != fe80::/10 iifname . ether saddr . icmpv6 taddr != @own6 counter drop"},
		{Text: "iifname . ether saddr . ip6 saddr @own6 accept"},
		{Text: "ip6 saddr fe80::/10 accept"},
		{Text: "ip saddr 0.0.0.0 udp dport 67 accept"},
		{Text: "ip6 saddr :: icmpv6 type 135 iifname . ether saddr . icmpv6 taddr @own6 accept"},
		{Text: "ip6 saddr :: icmpv6 type 135 icmpv6 taddr fe80::/10 accept"},
		{Text: "ip6 saddr :: icmpv6 type 133 accept"},
		{Text: "ip6 saddr :: icmpv6 type 131 accept"},
		{Text: "ip6 saddr :: icmpv6 type 132 accept"},
		{Text: "ip6 saddr :: icmpv6 type 143 accept"},
		{Text: "iifname . arp saddr ether . arp saddr ip @own4 accept"},
		{Text: "arp saddr ip 0.0.0.0 iifname . arp saddr ether @macs accept"},
		{Text: "ether type rarp accept"},
		{Text: "counter drop"},
	}
}

// guardElementsFor returns the elements that let a port which an earlier planner guarded also use another MAC address:
// its interface is created with that address.
func (in Input) guardElementsFor(mac state.MAC) []state.Table {
	for _, t := range in.Chain.Fragment.Host.Tables {
		if t.Family != "bridge" || t.Name != guardTable || mac.IsZero() {
			continue
		}
		t.Sets = slices.Clone(t.Sets)
		for i, s := range t.Sets {
			var more []state.Element
			for _, e := range s.Elements {
				if len(e.Key) > 1 { // an element with the port's name only contains no MAC address
					e.Key = slices.Clone(e.Key)
					e.Key[1] = mac.String()
					more = append(more, e)
				}
			}
			t.Sets[i].Elements = more
		}
		return []state.Table{t}
	}
	return nil
}
