// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"slices"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/state"
)

// guardTable has who is at a bridge's port speak for itself alone: by its MAC and its addresses, in ARP and neighbor
// advertisements as well; not as a router, not as a DHCP server, not tagged.
//
// Records of pods keep the table as it was when they were attached. One whose sets have become others has another name,
// so that an upgrade leaves those pods' elements where they are: both tables look at their own ports alone.
const guardTable = "weft_guard2"

// earlierGuardTable is that of pods attached when the IPv6 addresses were a set of ranges.
const earlierGuardTable = "weft_guard"

// guards reports whether a port is guarded: where the configuration says so; where it says nothing, if its addresses
// are known and either all are guarded or a virtual machine is there.
func (c bridgeConf) guards(r model.Request, all bool) bool {
	if c.Guard != nil {
		return *c.Guard
	}
	return (all || r.VM() != nil) && c.ipam && len(c.VlanTrunk) == 0
}

// checkGuard refuses a guard that would drop what the port is for.
func (c bridgeConf) checkGuard() error {
	if c.Guard != nil && *c.Guard && len(c.VlanTrunk) > 0 {
		return model.Faultf(model.CodeInvalidConf, "leave one of them out: a guarded port takes no tagged frames",
			"plugin bridge: guard true and vlanTrunk exclude each other")
	}
	return nil
}

// watched are the tables that look at what the container sends.
func (c bridgeConf) watched(r model.Request, ends pair, a addressed, all bool) []state.Table {
	var out []state.Table
	if c.MACSpoofChk {
		out = append(out, SpoofCheck(r.Key(), ends.host.Name, ends.pod.MAC))
	}
	if c.guards(r, all) {
		out = append(out, portGuard(r.Key(), ends.host.Name, ends.pod.MAC, a, !c.ipam))
	}
	return out
}

// portGuard is the shared table with the elements of one port; without a name it is the table alone. Whoever is at a
// port of which no addresses are known may have any.
func portGuard(k model.AttachmentKey, port string, mac state.MAC, a addressed, free bool) state.Table {
	mark := elementMark(k)
	ports, anybody := state.Set{Name: "ports", Key: "ifname"}, state.Set{Name: "free", Key: "ifname"}
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
			add(&anybody)
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
		Sets: []state.Set{ports, anybody, macs, own4, own6}, Chains: append(portErrors(), state.Chain{
			Name: "prerouting", Type: "filter", Hook: "prerouting", Priority: -300, Policy: "accept", Rules: portGuardRules(),
		}),
	}
}

// portErrors let who is at a port report errors only about packets that were sent to it, as errorChains do on a routed
// link. Nothing is put together yet on a bridge: only what shows its type is looked at, and what does not show which
// packet it is about is dropped.
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

// portGuardRules ask what most packets are first: of TCP, and of UDP over IPv4, a guarded port's own packets pass with
// one lookup, whatever the number of ports, and before it is asked whether the port is guarded. Any address of the link
// may be a port's own, by its MAC: they are no elements, since a set of ranges is copied whole by each change. 134 and
// 137 are what routers say, 136 tells whose an address is; where a fragment or an option stands before what is said on
// the link, the type of that cannot be seen. 135 from nobody doubts an address: whoever is about to take it does
// without. 68 and 546 are what clients of DHCP listen to. What has a tag is no IP to "ether type".
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

// guardedToo are the elements by which the guard knows a port that planners before this one have guarded by one more
// MAC: its interface is made with that.
func (in Input) guardedToo(mac state.MAC) []state.Table {
	for _, t := range in.Chain.Fragment.Host.Tables {
		if t.Family != "bridge" || t.Name != guardTable || mac.IsZero() {
			continue
		}
		t.Sets = slices.Clone(t.Sets)
		for i, s := range t.Sets {
			var more []state.Element
			for _, e := range s.Elements {
				if len(e.Key) > 1 { // the name of a port alone says nothing of its MAC
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
