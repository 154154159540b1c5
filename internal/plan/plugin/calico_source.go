// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/state"
)

// SourceTable names the anti-spoofing tables of routed pods, one for IP and one for ARP.
const SourceTable = "weft_source"

// source is the set of addresses that may be used on a routed interface.
type source struct {
	link  string
	mac   state.MAC
	addrs []netip.Addr
	// hasIPv6 permits packets from the unspecified address, which a host without an address sends.
	hasIPv6 bool
	// extra are the permitted prefixes other than the pod's own addresses.
	extra []netip.Prefix
}

// tables returns the shared tables with the elements of one interface, or without elements if the interface has no
// name. Packets from a routed interface are dropped if their MAC or source address is not the pod's, whatever their
// destination, and if they are for the node's loopback addresses, which route_localnet would permit, or are router
// advertisements. A pod adds elements only.
//
// Neighbor entries need no protection: they are permanent on both ends.
func (s source) tables(k model.AttachmentKey) []state.Table {
	mark := elementMark(k)
	add := func(set *state.Set, key ...string) {
		if s.link != "" {
			set.Elements = append(set.Elements, state.Element{Key: append([]string{s.link}, key...), Comment: mark})
		}
	}
	links, links4 := state.Set{Name: "links", Key: "ifname"}, state.Set{Name: "links", Key: "ifname"}
	own4, own6 := state.Set{Name: "own4", Key: "ifname . ether_addr . ipv4_addr"},
		state.Set{Name: "own6", Key: "ifname . ether_addr . ipv6_addr"}
	own, more := state.Set{Name: "own4", Key: own4.Key}, state.Set{Name: "more4", Key: own4.Key, Interval: true}
	// A host without an address sends duplicate address detection, router solicitations and multicast listener reports
	// only.
	unaddressed := state.Set{Name: "unaddressed", Key: "ifname . ether_addr"}
	if s.hasIPv6 {
		add(&unaddressed, s.mac.String())
	}
	more4, more6 := state.Set{Name: "more4", Key: own4.Key, Interval: true},
		state.Set{Name: "more6", Key: own6.Key, Interval: true}
	add(&links)
	add(&links4)
	for _, a := range s.addrs {
		if a.Is4() {
			add(&own4, s.mac.String(), a.String())
			add(&own, s.mac.String(), a.String())
		} else {
			add(&own6, s.mac.String(), a.String())
		}
	}
	for _, p := range s.extra {
		if p.Addr().Is4() {
			add(&more4, s.mac.String(), p.String())
			add(&more, s.mac.String(), p.String())
		} else {
			add(&more6, s.mac.String(), p.String())
		}
	}
	return ownedByLast([]state.Table{
		{
			Family: "inet", Name: SourceTable, Shared: true, Sets: []state.Set{links, own4, own6, unaddressed, more4, more6},
			Chains: append(errorChains(), state.Chain{
				Name: "prerouting", Type: "filter", Hook: "prerouting", Priority: -300, Policy: "accept", Rules: sourceRules(),
			}),
		},
		{Family: "arp", Name: SourceTable, Shared: true, Sets: []state.Set{links4, own, more}, Chains: []state.Chain{{
			Name: "input", Type: "filter", Hook: "input", Policy: "accept",
			Rules: []state.NftRule{
				{Text: "iifname != @links accept"},
				{Text: "iifname . arp saddr ether . arp saddr ip @own4 accept"},
				{Text: "iifname . arp saddr ether . arp saddr ip @more4 accept"},
				{Text: "counter drop"},
			},
		}}},
	})
}

// SourceTables returns the anti-spoofing tables of a routed interface that has one address, for measurements without an agent.
func SourceTables(k model.AttachmentKey, link string, mac state.MAC, addr netip.Addr) []state.Table {
	return source{link: link, mac: mac, addrs: []netip.Addr{addr}}.tables(k)
}

// ownedByLast assigns the elements of shared tables to the attachment that was applied last: the next sandbox of a pod
// has an interface of the same name, and a late cleanup of the previous sandbox must not remove its elements.
func ownedByLast(tables []state.Table) []state.Table {
	for _, t := range tables {
		for i := range t.Sets {
			t.Sets[i].Owned = t.Sets[i].Exclusive == ""
		}
	}
	return tables
}

// sourceRules returns the rules, those of the exact sets first: the others are mostly empty. The ICMPv6 types 134 and
// 137 are router advertisements and redirects.
func sourceRules() []state.NftRule {
	return []state.NftRule{
		{Text: "iifname != @links accept"},
		{Text: "ip daddr 127.0.0.0/8 drop"},
		{Text: "meta l4proto icmp jump errors4"},
		{Text: "meta l4proto ipv6-icmp jump errors6"},
		{Text: "iifname . ether saddr . ip saddr @own4 accept"},
		{Text: "icmpv6 type 134 drop"},
		{Text: "icmpv6 type 137 drop"},
		{Text: "iifname . ether saddr . ip6 saddr @own6 accept"},
		{Text: "ip6 saddr :: icmpv6 type 131-133 iifname . ether saddr @unaddressed accept"},
		{Text: "ip6 saddr :: icmpv6 type 135 iifname . ether saddr @unaddressed accept"},
		{Text: "ip6 saddr :: icmpv6 type 143 iifname . ether saddr @unaddressed accept"},
		{Text: "iifname . ether saddr . ip saddr @more4 accept"},
		{Text: "iifname . ether saddr . ip6 saddr @more6 accept"},
		{Text: "counter drop"},
	}
}

// errorChains returns the chains that restrict ICMP errors to packets that were sent to the pod. Connection tracking
// relates an error about a known connection to that connection, whichever host sends it, and policies accept related
// packets. Otherwise a pod could disturb the connections of others, and send data to their endpoints past every policy.
// The destination of the quoted packet is 16 bytes after the ICMP header, 24 for IPv6.
func errorChains() []state.Chain {
	chain := func(name, word, quoted, own, extra string, others ...string) state.Chain {
		c := state.Chain{Name: name}
		for _, kinds := range others {
			c.Rules = append(c.Rules, state.NftRule{Text: word + " type " + kinds + " return"})
		}
		for _, set := range []string{own, extra} {
			c.Rules = append(c.Rules, state.NftRule{Text: "iifname . ether saddr . " + quoted + " @" + set + " return"})
		}
		c.Rules = append(c.Rules, state.NftRule{Text: "counter drop"})
		return c
	}
	return []state.Chain{
		chain("errors4", "icmp", "@th,192,32", "own4", "more4", "0-2", "6-10", "13-255"),
		chain("errors6", "icmpv6", "@th,256,128", "own6", "more6", "128-255"),
	}
}

// sourceOf returns the addresses that the pod may use: its own and, with IPv6, the link-local one and, for duplicate
// address detection, the unspecified one.
func sourceOf(veth pair, a addressed) source {
	s := source{link: veth.host.Name, mac: veth.pod.MAC}
	for _, ip := range a.ips {
		s.addrs = append(s.addrs, ip.Address.Addr())
	}
	if a.v6 || a.late {
		s.hasIPv6 = true
		s.addrs = append(s.addrs, linkLocal(veth.pod.Name, veth.pod.MAC).Prefix.Addr())
	}
	return s
}

// SplitSources splits an anti-spoofing table; other tables are returned unchanged. own has the elements for the pod's
// addresses, nil if there are none; rest has all others, the pod's link-local address included.
func SplitSources(t state.Table) (rest state.Table, own *state.Table) {
	if !t.Shared || t.Name != SourceTable && t.Name != guardTable && t.Name != earlierGuardTable {
		return t, nil
	}
	rest, named := t, t
	rest.Sets, named.Sets = slices.Clone(t.Sets), slices.Clone(t.Sets)
	for i, s := range t.Sets {
		rest.Sets[i].Elements, named.Sets[i].Elements = nil, nil
		for _, e := range s.Elements {
			if len(e.Key) == 3 && !strings.HasPrefix(e.Key[2], "fe80:") { // link, MAC, address
				named.Sets[i].Elements = append(named.Sets[i].Elements, e)
				own = &named
			} else {
				rest.Sets[i].Elements = append(rest.Sets[i].Elements, e)
			}
		}
	}
	return rest, own
}
