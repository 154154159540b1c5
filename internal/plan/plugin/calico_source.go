// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/state"
)

// SourceTable names the tables that keep pods from speaking in others' names, one for IP and one for ARP.
const SourceTable = "weft_source"

// source is who may speak over a routed link.
type source struct {
	link  string
	mac   state.MAC
	addrs []netip.Addr
	// six: the pod has IPv6, and begins without an address.
	six bool
	// more are prefixes beside the pod's own addresses.
	more []netip.Prefix
}

// tables are the shared tables with the elements of one link; without a name they are the tables alone. What comes in
// over a routed link with another hardware address or another source address than the pod's is dropped, whoever it is
// for, and so is what is for the node's own loopback addresses, which the link would let through, and what a router
// says. A pod costs elements only.
//
// Who a neighbor is, no pod can change: the entries on both ends are permanent.
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
	// Without an address a pod asks whether it may have one, looks for routers, and says which groups it listens to:
	// nothing else.
	unaddressed := state.Set{Name: "unaddressed", Key: "ifname . ether_addr"}
	if s.six {
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
	for _, p := range s.more {
		if p.Addr().Is4() {
			add(&more4, s.mac.String(), p.String())
			add(&more, s.mac.String(), p.String())
		} else {
			add(&more6, s.mac.String(), p.String())
		}
	}
	return passing([]state.Table{
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

// passing has the elements of shared tables belong to whoever applied them last: a pod's next sandbox has a link of the
// same name, and what is undone late of the one before must not be its.
func passing(tables []state.Table) []state.Table {
	for _, t := range tables {
		for i := range t.Sets {
			t.Sets[i].Owned = t.Sets[i].Exclusive == ""
		}
	}
	return tables
}

// sourceRules ask the exact sets first: hardly anybody is in the others. 134 and 137 are what routers say:
// advertisements and redirects.
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

// errorChains let a pod report errors only about packets that were sent to it. Connection tracking takes an error about
// a known connection for a part of that, whichever host sends it, and policies accept such packets: a pod could
// otherwise disturb connections of others, and send data to their ends past every policy. What an error quotes has its
// destination 16 bytes behind ICMP's head, 24 for IPv6.
func errorChains() []state.Chain {
	chain := func(name, word, quoted, own, more string, others ...string) state.Chain {
		c := state.Chain{Name: name}
		for _, kinds := range others {
			c.Rules = append(c.Rules, state.NftRule{Text: word + " type " + kinds + " return"})
		}
		for _, set := range []string{own, more} {
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

// sourceOf is who may speak over a pair: the pod by its addresses, and where it has IPv6 by its link-local one and,
// while it looks for neighbors of the same address, by none.
func sourceOf(ends pair, a addressed) source {
	s := source{link: ends.host.Name, mac: ends.pod.MAC}
	for _, ip := range a.ips {
		s.addrs = append(s.addrs, ip.Address.Addr())
	}
	if a.v6 || a.late {
		s.six = true
		s.addrs = append(s.addrs, linkLocal(ends.pod.Name, ends.pod.MAC).Prefix.Addr())
	}
	return s
}

// SplitSources parts the tables that look at packets' sources (others are given back whole): own is what lets in what
// bears the addresses of a pod, nil where there is nothing; rest is all else, the pod's link-local address among it.
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
