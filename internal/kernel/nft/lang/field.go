// SPDX-License-Identifier: Apache-2.0

package lang

import (
	"encoding/binary"
	"strings"

	"golang.org/x/sys/unix"
)

// Protocol numbers that fields depend on.
const (
	protoIPv4, protoARP, protoIPv6 = 2, 3, 10
	protoTCP, protoUDP, protoSCTP  = 6, 17, 132
	protoICMP, protoICMPv6         = 1, 58
)

// metaOifkind is the kernel's NFT_META_OIFKIND, which x/sys does not have: the kind of the outgoing link.
const metaOifkind = 27

// field is a property of a packet that a rule can load: its name, its type, and the expression that loads it.
type field struct {
	name string
	typ  Type
	load Expr
	// l3 and l4 are the protocols that the packet must have for the field to be valid; 0 is any.
	l3, l4 byte
}

// ctID is NFT_CT_ID, which golang.org/x/sys/unix lacks. A set of identities has the type mark: nft has no name for theirs.
const ctID = 23

// fields yields all fields lazily: a short-lived process needs few of them.
func fields(yield func(field) bool) { _ = namedFields(yield) && rawFields(yield) }

// namedFields are the fields that nft has names for.
func namedFields(yield func(field) bool) bool {
	return yield(network("ip saddr", "ipv4_addr", protoIPv4, 12)) &&
		yield(network("ip daddr", "ipv4_addr", protoIPv4, 16)) &&
		yield(network("ip protocol", "inet_proto", protoIPv4, 9)) &&
		yield(network("ip6 saddr", "ipv6_addr", protoIPv6, 8)) && yield(network("ip6 daddr", "ipv6_addr", protoIPv6, 24)) &&
		yield(network("ip6 nexthdr", "inet_proto", protoIPv6, 6)) &&
		yield(network("ip6 hoplimit", "integer", protoIPv6, 7)) &&
		yield(meta("iifname", "ifname", unix.NFT_META_IIFNAME)) && yield(meta("oifname", "ifname", unix.NFT_META_OIFNAME)) &&
		yield(meta("meta oifkind", "ifname", metaOifkind)) &&
		yield(meta("meta mark", "mark", unix.NFT_META_MARK)) &&
		yield(meta("meta l4proto", "inet_proto", unix.NFT_META_L4PROTO)) &&
		yield(meta("meta nfproto", "nf_proto", unix.NFT_META_NFPROTO)) &&
		yield(meta("meta protocol", "ether_type", unix.NFT_META_PROTOCOL)) &&
		yield(conntrack("ct state", "ct_state", unix.NFT_CT_STATE)) &&
		yield(conntrack("ct status", "ct_status", unix.NFT_CT_STATUS)) &&
		yield(conntrack("ct mark", "mark", unix.NFT_CT_MARK)) &&
		yield(conntrack("ct id", "mark", ctID)) &&
		yield(conntrack("ct direction", "ct_dir", unix.NFT_CT_DIRECTION)) &&
		yield(fib("fib daddr type", unix.NFTA_FIB_F_DADDR)) && yield(fib("fib saddr type", unix.NFTA_FIB_F_SADDR)) &&
		yield(payload("ether daddr", "ether_addr", unix.NFT_PAYLOAD_LL_HEADER, 0)) &&
		yield(payload("ether saddr", "ether_addr", unix.NFT_PAYLOAD_LL_HEADER, 6)) &&
		yield(payload("ether type", "ether_type", unix.NFT_PAYLOAD_LL_HEADER, 12)) &&
		yield(arp("arp saddr ether", "ether_addr", 8)) && yield(arp("arp saddr ip", "ipv4_addr", 14)) &&
		yield(arp("arp operation", "arp_op", 6)) && yield(arp("arp daddr ip", "ipv4_addr", 24)) &&
		yield(port("tcp sport", protoTCP, 0)) && yield(port("tcp dport", protoTCP, 2)) &&
		yield(port("udp sport", protoUDP, 0)) && yield(port("udp dport", protoUDP, 2)) &&
		yield(port("sctp sport", protoSCTP, 0)) && yield(port("sctp dport", protoSCTP, 2)) &&
		yield(icmp("icmp type", "icmp_type", protoIPv4, protoICMP)) &&
		yield(icmp("icmpv6 type", "icmpv6_type", protoIPv6, protoICMPv6)) &&
		yield(payload("icmp code", "integer", unix.NFT_PAYLOAD_TRANSPORT_HEADER, 1).requires(protoIPv4, protoICMP)) &&
		yield(payload("icmpv6 code", "integer", unix.NFT_PAYLOAD_TRANSPORT_HEADER, 1).requires(protoIPv6, protoICMPv6)) &&
		yield(ndTarget("icmpv6 taddr")) && yield(port("th sport", 0, 0)) && yield(port("th dport", 0, 2)) &&
		yield(payload("tcp flags", "tcp_flag", unix.NFT_PAYLOAD_TRANSPORT_HEADER, 13).requires(0, protoTCP)) &&
		yield(network("ip id", "inet_service", protoIPv4, 4)) &&
		yield(network("ip frag-off", "inet_service", protoIPv4, 6)) &&
		yield(payload("icmp id", "inet_service", unix.NFT_PAYLOAD_TRANSPORT_HEADER, 4).requires(protoIPv4, protoICMP)) &&
		yield(payload("icmpv6 id", "inet_service", unix.NFT_PAYLOAD_TRANSPORT_HEADER, 4).requires(protoIPv6, protoICMPv6))
}

func fieldNamed(name string) (field, bool) {
	switch name {
	case "meta iifname", "meta oifname":
		name = name[len("meta "):]
	}
	all := namedFields
	if strings.HasPrefix(name, "@") {
		all = rawFields
	}
	var found field
	missing := all(func(f field) bool {
		if f.name == name {
			found = f
		}
		return f.name != name
	})
	return found, !missing
}

func payload(name, typ string, base, off uint32) field {
	t, _ := typeByName(typ)
	return field{name: name, typ: t, load: Expr{Name: "payload", Key: base, Offset: off, Size: uint32(t.Size)}}
}

func network(name, typ string, l3 byte, off uint32) field {
	f := payload(name, typ, unix.NFT_PAYLOAD_NETWORK_HEADER, off)
	f.l3 = l3
	return f
}

func port(name string, l4 byte, off uint32) field {
	f := payload(name, "inet_service", unix.NFT_PAYLOAD_TRANSPORT_HEADER, off)
	f.l4 = l4
	return f
}

// arp returns a field of ARP for Ethernet and IPv4.
func arp(name, typ string, off uint32) field { return network(name, typ, protoARP, off) }

func icmp(name, typ string, l3, l4 byte) field {
	f := payload(name, typ, unix.NFT_PAYLOAD_TRANSPORT_HEADER, 0)
	f.l3, f.l4 = l3, l4
	return f
}

// ndTarget returns the target address of a neighbor solicitation or advertisement.
func ndTarget(name string) field {
	f := payload(name, "ipv6_addr", unix.NFT_PAYLOAD_TRANSPORT_HEADER, 8)
	f.l3, f.l4 = protoIPv6, protoICMPv6
	return f
}

func meta(name, typ string, key uint32) field {
	t, _ := typeByName(typ)
	return field{name: name, typ: t, load: Expr{Name: "meta", Key: key}}
}

func conntrack(name, typ string, key uint32) field {
	t, _ := typeByName(typ)
	return field{name: name, typ: t, load: Expr{Name: "ct", Key: key}}
}

func fib(name string, flags uint32) field {
	t, _ := typeByName("fib_addrtype")
	return field{name: name, typ: t, load: Expr{Name: "fib", Key: unix.NFT_FIB_RESULT_ADDRTYPE, Flags: flags}}
}

// protocols are the protocols of the packet that are known at one place of a rule.
type protocols struct{ l3, l4 byte }

// start returns what is known at the beginning of a rule in a table of the family.
func start(family byte) protocols {
	switch family {
	case unix.NFPROTO_IPV4:
		return protocols{l3: protoIPv4}
	case unix.NFPROTO_IPV6:
		return protocols{l3: protoIPv6}
	case unix.NFPROTO_ARP:
		return protocols{l3: protoARP}
	}
	return protocols{}
}

// protocolGuard returns the field and the value whose comparison ensures a network protocol in a table of the family.
func protocolGuard(family, l3 byte) (field, []byte) {
	if family == unix.NFPROTO_INET {
		f, _ := fieldNamed("meta nfproto")
		return f, []byte{l3}
	}
	f, _ := fieldNamed("meta protocol")
	kind := uint16(unix.ETH_P_IP)
	switch l3 {
	case protoIPv6:
		kind = unix.ETH_P_IPV6
	case protoARP:
		kind = unix.ETH_P_ARP
	}
	return f, binary.BigEndian.AppendUint16(nil, kind)
}

// refine adds the knowledge from a comparison of f with value.
func (p protocols) refine(f field, value []byte) protocols {
	switch f.name {
	case "meta nfproto":
		p.l3 = value[0]
	case "meta l4proto":
		p.l4 = value[0]
	case "meta protocol":
		switch binary.BigEndian.Uint16(value) {
		case unix.ETH_P_IP:
			p.l3 = protoIPv4
		case unix.ETH_P_IPV6:
			p.l3 = protoIPv6
		case unix.ETH_P_ARP:
			p.l3 = protoARP
		}
	}
	return p
}

// identify finds the field of a load; part is the number of bytes that it loads.
func (p protocols) identify(e Expr) (f field, part int, ok bool) {
	for f := range fields {
		l := f.load
		if l.Name != e.Name || l.Key != e.Key || l.Offset != e.Offset || l.Flags != e.Flags {
			continue
		}
		if f.l3 != 0 && f.l3 != p.l3 {
			continue
		}
		if f.l4 != 0 && f.l4 != p.l4 {
			continue
		}
		if e.Name != "payload" {
			return f, f.typ.Size, true
		}
		if e.Size == l.Size || e.Size < l.Size && f.typ.isAddress() {
			return f, int(e.Size), true
		}
	}
	return field{}, 0, false
}
