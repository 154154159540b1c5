// SPDX-License-Identifier: Apache-2.0

package forge

import (
	"fmt"
	"net/netip"
	"slices"
)

// Attack is a frame that must be dropped, with a unique word in it.
type Attack struct {
	Name  string
	Frame []byte
	Word  []byte
}

// Stage is what an attacker knows. Addresses are by family, IPv4's first.
type Stage struct {
	MAC, To, Victim    []byte // its own, the next hop's and its victim's
	Own, Peer, Gateway [2]netip.Addr
	Local              netip.Addr // its link-local address
}

// Fence is the word in honest packets.
const Fence = "HONEST-WORD"

// Honest returns a packet that a guest may send, to a port that no program has.
func (s Stage) Honest(family int) []byte {
	const port = 4001
	from, to := netip.AddrPortFrom(s.Own[family], port), netip.AddrPortFrom(s.Peer[family], port)
	return Ether(s.To, s.MAC, KindOf(from.Addr()), IP(from.Addr(), to.Addr(), ProtoUDP, UDP(from, to, []byte(Fence))))
}

// Attacks returns frames with spoofed addresses, router advertisements, replies of DHCP servers, and others that no guest may
// send.
func (s Stage) Attacks() []Attack {
	var out []Attack
	every, other := []byte{255, 255, 255, 255, 255, 255}, []byte{2, 0, 0, 0, 0, 0x66}
	nodes, routers := netip.MustParseAddr("ff02::1"), []byte{0x33, 0x33, 0, 0, 0, 1}
	add := func(name string, make func(word []byte) []byte) {
		word := fmt.Appendf(nil, "EVIL-%02d-", len(out))
		out = append(out, Attack{name, make(word), word})
	}
	packet := func(mac []byte, src, dst netip.Addr, word []byte, ports ...uint16) []byte {
		from, to := uint16(4000), uint16(4000)
		if len(ports) == 2 {
			from, to = ports[0], ports[1]
		}
		return Ether(s.To, mac, KindOf(src),
			IP(src, dst, ProtoUDP, UDP(netip.AddrPortFrom(src, from), netip.AddrPortFrom(dst, to), word)))
	}
	foreign := [2]netip.Addr{netip.MustParseAddr("10.244.1.77"), netip.MustParseAddr("fd00:1::77")}
	for i := range s.Own {
		add("another MAC", func(w []byte) []byte { return packet(other, s.Own[i], s.Peer[i], w) })
		add("another address", func(w []byte) []byte { return packet(s.MAC, foreign[i], s.Peer[i], w) })
		add("the gateway's address", func(w []byte) []byte { return packet(s.MAC, s.Gateway[i], s.Peer[i], w) })
		add("a tag", func(w []byte) []byte { return Tagged(packet(s.MAC, s.Own[i], s.Peer[i], w), TypeVLAN, 7) })
		add("another address behind a tag", func(w []byte) []byte {
			return Tagged(packet(s.MAC, foreign[i], s.Peer[i], w), TypeVLAN, 0)
		})
		add("two tags", func(w []byte) []byte {
			return Tagged(Tagged(packet(s.MAC, s.Own[i], s.Peer[i], w), TypeVLAN, 7), TypeQinQ, 8)
		})
	}
	for _, fragment := range []uint16{0x2000, 1} { // the first fragment; the second
		add("a fragment of another address", func(w []byte) []byte {
			return Ether(s.To, s.MAC, TypeIPv4,
				IP(foreign[0], s.Peer[0], ProtoUDP, slices.Concat(w, make([]byte, 16-len(w)%8)), fragment))
		})
	}
	add("ARP for the gateway", func(w []byte) []byte {
		return slices.Concat(Ether(every, s.MAC, TypeARP, ARP(s.MAC, s.Gateway[0], every, s.Peer[0])), w)
	})
	add("ARP for the gateway, to one", func(w []byte) []byte {
		return slices.Concat(Ether(s.Victim, s.MAC, TypeARP, ARP(s.MAC, s.Gateway[0], s.Victim, s.Peer[0])), w)
	})
	add("ARP with another MAC in it", func(w []byte) []byte {
		return slices.Concat(Ether(every, s.MAC, TypeARP, ARP(other, s.Own[0], every, s.Own[0])), w)
	})
	add("the gateway's advertisement", func(w []byte) []byte {
		m := ICMPv6(s.Own[1], nodes, 136, slices.Concat(Neighbor(s.Gateway[1], s.MAC), w))
		return Ether(routers, s.MAC, TypeIPv6, IP(s.Own[1], nodes, ProtoICMPv6, m))
	})
	add("a solicitation from the gateway", func(w []byte) []byte {
		m := ICMPv6(s.Gateway[1], nodes, 135, slices.Concat([]byte{0, 0, 0, 0}, s.Peer[1].AsSlice(), []byte{1, 1}, s.MAC, w))
		return Ether(routers, s.MAC, TypeIPv6, IP(s.Gateway[1], nodes, ProtoICMPv6, m))
	})
	add(
		"duplicate address detection of another's address",
		func(w []byte) []byte { // a host in duplicate address detection must give its address up
			m := ICMPv6(netip.IPv6Unspecified(), nodes, 135, slices.Concat([]byte{0, 0, 0, 0}, s.Peer[1].AsSlice(), w))
			return Ether(routers, s.MAC, TypeIPv6, IP(netip.IPv6Unspecified(), nodes, ProtoICMPv6, m))
		},
	)
	add("a DHCP server", func(w []byte) []byte {
		all := netip.MustParseAddr("255.255.255.255")
		return Ether(every, s.MAC, TypeIPv4,
			IP(s.Own[0], all, ProtoUDP, UDP(netip.AddrPortFrom(s.Own[0], 67), netip.AddrPortFrom(all, 68), w)))
	})
	add("a DHCP server, to one", func(w []byte) []byte { return packet(s.MAC, s.Own[0], s.Peer[0], w, 67, 68) })
	add("a DHCPv6 server", func(w []byte) []byte { return packet(s.MAC, s.Own[1], s.Peer[1], w, 547, 546) })
	add("a router", func(w []byte) []byte {
		m := ICMPv6(s.Local, nodes, 134, slices.Concat(Router(s.MAC), w))
		return Ether(routers, s.MAC, TypeIPv6, IP(s.Local, nodes, ProtoICMPv6, m))
	})
	add("a router behind options", func(w []byte) []byte {
		m := ICMPv6(s.Local, nodes, 134, slices.Concat(Router(s.MAC), w))
		return Ether(routers, s.MAC, TypeIPv6,
			IP(s.Local, nodes, ProtoDest, slices.Concat([]byte{ProtoICMPv6, 0, 1, 4, 0, 0, 0, 0}, m)))
	})
	add("a router in fragments", func(w []byte) []byte {
		m := ICMPv6(s.Local, nodes, 134, slices.Concat(Router(s.MAC), w))
		return Ether(routers, s.MAC, TypeIPv6,
			IP(s.Local, nodes, ProtoFragment, slices.Concat([]byte{ProtoICMPv6, 0, 0, 8, 0, 0, 0, 7}, m)))
	})
	add("a redirect", func(w []byte) []byte {
		m := ICMPv6(s.Local, s.Peer[1], 137, slices.Concat(make([]byte, 36), w))
		return Ether(s.To, s.MAC, TypeIPv6, IP(s.Local, s.Peer[1], ProtoICMPv6, m))
	})
	add("a spanning tree", func(w []byte) []byte {
		return Ether([]byte{1, 0x80, 0xc2, 0, 0, 0}, s.MAC, 60, slices.Concat([]byte{0x42, 0x42, 3}, make([]byte, 35), w))
	})
	add("another protocol", func(w []byte) []byte {
		return Ether(s.To, s.MAC, 0x88cc, slices.Concat(w, make([]byte, 46)))
	})
	return out
}
