// SPDX-License-Identifier: Apache-2.0

package nft

import (
	"strings"

	"github.com/weft-net/weft/internal/state"
)

func rules(lines string) []state.NftRule {
	var out []state.NftRule
	for l := range strings.Lines(lines) {
		if l = strings.TrimSpace(l); l != "" {
			text, comment, _ := strings.Cut(l, "  # ")
			out = append(out, state.NftRule{Text: text, Comment: comment})
		}
	}
	return out
}

// masq returns the shared table that pods are added to.
func masq(pods ...string) state.Table {
	t := state.Table{
		Family: "inet", Name: "weft", Shared: true,
		Sets: []state.Set{
			{Name: "masq4", Key: "ipv4_addr"},
			{Name: "masq6", Key: "ipv6_addr"},
			{Name: "nomasq4", Key: "ipv4_addr . ipv4_addr", Interval: true},
			{Name: "nomasq6", Key: "ipv6_addr . ipv6_addr", Interval: true},
		},
		Chains: []state.Chain{{
			Name: "postrouting", Type: "nat", Hook: "postrouting", Priority: 100, Policy: "accept",
			Rules: rules(`
				ip daddr 224.0.0.0/4 return
				ip6 daddr ff00::/8 return
				ip saddr . ip daddr @nomasq4 return
				ip6 saddr . ip6 daddr @nomasq6 return
				ip saddr @masq4 masquerade
				ip6 saddr @masq6 masquerade`),
		}},
	}
	for _, p := range pods {
		t.Sets[0].Elements = append(t.Sets[0].Elements, state.Element{Key: []string{p}, Comment: "pod " + p})
		t.Sets[2].Elements = append(t.Sets[2].Elements, state.Element{Key: []string{p, "10.1.0.0/24"}, Comment: "pod " + p})
	}
	return t
}

func elements(keys ...string) []state.Element {
	var out []state.Element
	for _, k := range keys {
		key, val, isMap := strings.Cut(k, " : ")
		e := state.Element{Key: strings.Split(key, " . ")}
		if isMap {
			e.Val = strings.Split(val, " . ")
		}
		out = append(out, e)
	}
	return out
}

// everything has each kind of set, rule and chain that is supported.
func everything() state.Table {
	return state.Table{
		Family: "inet", Name: "weft-all",
		Sets: []state.Set{
			{
				Name: "pair", Key: "ipv4_addr . ipv4_addr", Interval: true,
				Elements: elements("10.0.0.0/8 . 1.1.1.1", "10.9.0.1-10.9.0.7 . 0.0.0.0/0"),
			},
			{Name: "ports", Key: "inet_service", Interval: true, Elements: elements("1-5", "443", "60000-65535")},
			{
				Name: "nets", Key: "ipv4_addr", Interval: true,
				Elements: elements("10.0.0.0/8", "11.0.0.0/8", "192.168.1.7", "192.168.2.1-192.168.2.9", "255.0.0.0/8"),
			},
			{
				Name: "to", Key: "ipv4_addr . inet_service", Data: "ipv4_addr . inet_service",
				Elements: elements("10.0.0.1 . 80 : 10.1.0.2 . 8080"),
			},
			{
				Name: "tp", Key: "inet_proto . ipv4_addr . inet_service", Data: "ipv4_addr . inet_service",
				Elements: elements("tcp . 10.0.0.1 . 80 : 10.1.0.2 . 8080", "udp . 10.0.0.1 . 53 : 10.1.0.3 . 53"),
			},
			{
				Name: "judge", Key: "ipv4_addr", Data: "verdict",
				Elements: elements("1.1.1.1 : accept", "1.1.1.2 : jump x", "1.1.1.3 : drop"),
			},
			{Name: "marks", Key: "mark", Elements: elements("0x00000001", "0x0000ff00")},
			{Name: "links", Key: "ifname", Elements: elements(`"eth0"`)},
			{Name: "six", Key: "ipv6_addr", Elements: elements("2001:db8::1", "2001:db8::2")},
		},
		Chains: []state.Chain{
			{Name: "x"},
			{Name: "pre", Type: "nat", Hook: "prerouting", Priority: -100, Policy: "accept", Rules: rules(`
				ip saddr 10.0.0.0/8 ip daddr 10.1.2.0/23 tcp dport 80-90 accept
				ip saddr != 10.0.0.0/8 tcp dport != 80-90 accept
				ip saddr . ip daddr @pair return
				ip saddr . ip daddr != @pair return
				ip saddr vmap @judge
				ip saddr @nets tcp dport @ports return
				ip6 saddr @six return
				iifname @links return
				meta mark @marks return
				ct state established,related accept
				ct state new accept
				ct status dnat accept
				fib daddr type local accept
				dnat ip to ip daddr . tcp dport map @to
				dnat ip to meta l4proto . ip daddr . th dport map @tp
				tcp dport 8080 dnat ip to 1.2.3.4:80
				udp dport 8080 dnat ip6 to [2001:db8::5]:80
				dnat ip to 1.2.3.4
				ct mark set meta mark
				meta mark set ct mark
				meta mark set 0x00000001
				meta mark set meta mark | 0x00002000
				meta mark set meta mark & 0x000000ff
				meta mark & 0x00002000 == 0x00002000 accept
				meta mark & 0x00002000 != 0x00002000 accept
				iifname "veth*" accept
				oifname != "lo" accept
				meta oifkind "bridge" accept
				jump x`)},
			{Name: "post", Type: "nat", Hook: "postrouting", Priority: 100, Policy: "accept", Rules: rules(`
				masquerade
				masquerade random,persistent
				masquerade fully-random
				snat ip to 1.2.3.4  # why not`)},
		},
	}
}

func filter() state.Table {
	return state.Table{
		Family: "inet", Name: "weft-filter",
		Chains: []state.Chain{
			{Name: "deep"},
			{Name: "forward", Type: "filter", Hook: "forward", Priority: -5, Policy: "drop", Rules: rules(`
				goto deep
				reject
				meta l4proto tcp reject with tcp reset
				tcp dport 80 reject with tcp reset
				reject with icmpx admin-prohibited
				counter
				ip6 saddr fe80::/10 accept
				ip6 saddr 2001:db8::/32 accept
				ip6 daddr ::1 accept
				meta mark 0x00000005 accept
				ct mark & 0x000000ff == 0x00000001 accept
				udp dport 53 counter accept  # names
				meta l4proto ipv6-icmp accept
				meta l4proto 200 accept
				meta nfproto ipv4 accept
				ip protocol tcp accept
				sctp sport 5 accept
				icmpv6 type 133-137 accept
				icmpv6 type 200 accept
				icmp type 250 accept
				ct direction reply accept
				limit rate 10/second log prefix "np/shop/web" group 7
				limit rate 2/minute burst 20 packets counter log prefix "x" group 0 snaplen 64
				log
				th dport 7 accept
				ip saddr 10.0.0.1-10.0.0.9 accept
				ip saddr != 10.0.0.1-10.0.0.9 accept
				ip saddr != 10.0.0.1 drop`)},
			{Name: "raw", Type: "filter", Hook: "prerouting", Priority: -295, Policy: "accept", Rules: rules("notrack")},
			{Name: "odd", Type: "filter", Hook: "input", Priority: 77, Policy: "accept"},
		},
	}
}

func plainIP() state.Table {
	return state.Table{
		Family: "ip", Name: "weft-ip",
		Chains: []state.Chain{
			{Name: "c", Rules: rules(`
				tcp dport 80 drop
				reject
				reject with icmp admin-prohibited
				ip saddr 10.0.0.0/12 return`)},
			{Name: "x", Type: "nat", Hook: "postrouting", Priority: 100, Policy: "accept", Rules: rules("snat to 1.1.1.1")},
		},
	}
}

func arpTable() state.Table {
	return state.Table{
		Family: "arp", Name: "weft-arp",
		Sets: []state.Set{
			{Name: "links", Key: "ifname", Elements: elements(`"eth0"`)},
			{Name: "own", Key: "ifname . ether_addr . ipv4_addr", Elements: elements(`"eth0" . 02:00:00:00:00:01 . 10.0.0.1`)},
		},
		Chains: []state.Chain{{Name: "in", Type: "filter", Hook: "input", Policy: "accept", Rules: rules(`
			iifname != @links accept
			iifname . arp saddr ether . arp saddr ip @own accept
			arp saddr ip 10.0.0.0/8 accept
			arp saddr ether 02:00:00:00:00:02 accept
			counter drop`)}},
	}
}

// statefulTable returns a table with stateful elements, and rules that mark packets.
func statefulTable() state.Table {
	return state.Table{
		Family: "inet", Name: "weft-keepers",
		Sets: []state.Set{
			{Name: "fast", Key: "ifname", Elements: []state.Element{
				{Key: []string{`"eth0"`}, Stateful: "limit rate over 100/second burst 7 packets", Comment: "a"},
				{Key: []string{`"eth1"`}, Stateful: "limit rate over 9/second"},
			}},
			{Name: "class", Key: "ifname", Data: "verdict", Elements: elements(`"eth0" : jump dscp46`)},
		},
		Chains: []state.Chain{
			{Name: "dscp46", Rules: rules("ip dscp set 46\nip6 dscp set 46")},
			{Name: "in", Type: "filter", Hook: "prerouting", Priority: -150, Policy: "accept", Rules: rules(`
				iifname vmap @class
				iifname @fast drop`)},
		},
	}
}
