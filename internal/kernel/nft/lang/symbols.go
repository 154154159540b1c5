// SPDX-License-Identifier: Apache-2.0

package lang

import (
	"strings"

	"golang.org/x/sys/unix"
)

// symbol is a name that nft prints for a number.
type symbol struct {
	name string
	n    uint32
}

// symbols returns the names of a type's numbers.
func (t Type) symbols() []symbol {
	switch t.name {
	case "nf_proto":
		return []symbol{{"ipv4", 2}, {"ipv6", 10}}
	case "ether_type":
		return []symbol{
			{"ip", unix.ETH_P_IP},
			{"arp", unix.ETH_P_ARP},
			{"ip6", unix.ETH_P_IPV6},
			{"rarp", unix.ETH_P_RARP},
			{"8021q", unix.ETH_P_8021Q},
			{"8021ad", unix.ETH_P_8021AD},
		}
	case "arp_op":
		return []symbol{{"request", 1}, {"reply", 2}}
	case "inet_proto":
		return []symbol{
			{"icmp", 1},
			{"igmp", 2},
			{"tcp", 6},
			{"udp", 17},
			{"dccp", 33},
			{"gre", 47},
			{"esp", 50},
			{"ah", 51},
			{"ipv6-icmp", 58},
			{"sctp", 132},
			{"udplite", 136},
		}
	case "tcp_flag":
		return []symbol{{"fin", 1}, {"syn", 2}, {"rst", 4}, {"psh", 8}, {"ack", 16}, {"urg", 32}}
	case "ct_dir":
		return []symbol{{"original", 0}, {"reply", 1}}
	case "ct_state":
		return []symbol{{"invalid", 1}, {"established", 2}, {"related", 4}, {"new", 8}, {"untracked", 64}}
	case "ct_status":
		return []symbol{
			{"expected", 1}, {"seen-reply", 2}, {"assured", 4}, {"confirmed", 8}, {"snat", 16}, {"dnat", 32}, {"dying", 512},
		}
	case "fib_addrtype":
		return []symbol{
			{"unspec", 0},
			{"unicast", 1},
			{"local", 2},
			{"broadcast", 3},
			{"anycast", 4},
			{"multicast", 5},
			{"blackhole", 6},
			{"unreachable", 7},
			{"prohibit", 8},
		}
	}
	return nil
}

// symbol returns the number of a name.
func (t Type) symbol(name string) (uint32, bool) {
	if t.name == "inet_proto" && (name == "icmpv6" || name == "icmp6") {
		name = "ipv6-icmp"
	}
	for _, s := range t.symbols() {
		if s.name == name {
			return s.n, true
		}
	}
	return 0, false
}

// named reports whether any bits are set in b, and all of them have names.
func (t Type) named(b []byte) bool {
	bits := t.value(b)
	if bits == 0 {
		return false
	}
	for _, s := range t.symbols() {
		bits &^= s.n
	}
	return bits == 0
}

// formatFlags lists the bits of b by their names, joined with sep.
func (t Type) formatFlags(b []byte, sep string) string {
	bits := t.value(b)
	var names []string
	for _, s := range t.symbols() {
		if bits&s.n != 0 {
			names = append(names, s.name)
			bits &^= s.n
		}
	}
	if bits != 0 || len(names) == 0 {
		return t.format(b)
	}
	return strings.Join(names, sep)
}
