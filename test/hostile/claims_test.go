// SPDX-License-Identifier: Apache-2.0

package hostile_test

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/weft-net/weft/internal/nettest/forge"
)

// linkLocal is the link-local address that a pod's kernel makes of its Ethernet address.
func linkLocal(m mac) netip.Addr {
	a := [16]byte{0xfe, 0x80, 8: m[0] ^ 2, 9: m[1], 10: m[2], 11: 0xff, 12: 0xfe, 13: m[3], 14: m[4], 15: m[5]}
	return netip.AddrFrom16(a)
}

// others are the addresses that an attacker may want to have, by family.
func (s *stage) others(i int) map[string]netip.Addr {
	return map[string]netip.Addr{
		"the gateway": s.gateway[i], "a neighbor": s.pod("near").addrs[i], "an allowed peer": s.pod("friend").addrs[i],
		"this node": s.w.nodes[0].addrs[i], "a pod of another node": s.pod("far").addrs[i],
	}
}

const unanswered = "a routed link has no other host, nor has what a translation of addresses hides; on a bridge, what is for the router gets to no pod"

// claims are what only a neighbor, a router or a DHCP server may say.
func claims() []attack {
	nodes := netip.MustParseAddr("ff02::1")
	row := func(name string, shots func(*stage, *magazine)) attack {
		return attack{
			area: "claims on the link", name: name, levels: "bcd", from: "mallory", at: allPods, kernel: unanswered,
			shots: shots,
		}
	}
	icmp := func(s *stage, src, dst netip.Addr, kind byte, body []byte) send {
		return s.to(allNodes(), packet{src: src, dst: dst, proto: protoICMPv6, hops: 255, body: forge.ICMPv6(src, dst, kind, body)})
	}
	return []attack{
		row("ARP for others' addresses", func(s *stage, m *magazine) {
			for what, is := range s.others(0) {
				for _, dst := range []mac{broadcast(), s.pod("near").mac, s.router} {
					arrives := s.bridged() && !slices.Equal(dst, s.router)
					m.expect(arrives, fmt.Sprintf("%s, to %x", what, dst), func(w []byte) send {
						return send{
							Link:  "eth0",
							Frame: slices.Concat(forge.Ether(dst, s.me.mac, typeARP, forge.ARP(s.me.mac, is, dst, s.pod("near").addrs[0])), w),
						}
					})
				}
			}
		}),
		row("ARP with another Ethernet address in it", func(s *stage, m *magazine) {
			for _, of := range []mac{s.pod("near").mac, s.router, {2, 0, 0, 0, 0, 0x66}} {
				m.expect(s.bridged(), fmt.Sprintf("%x", of), func(w []byte) send {
					return send{
						Link: "eth0",
						Frame: slices.Concat(forge.Ether(broadcast(), s.me.mac, typeARP, forge.ARP(of, s.me.addrs[0], broadcast(), s.me.addrs[0])),
							w),
					}
				})
			}
		}),
		row("neighbor advertisements for others' addresses", func(s *stage, m *magazine) {
			for what, is := range s.others(1) {
				m.expect(s.bridged(), what, func(w []byte) send {
					return icmp(s, s.me.addrs[1], nodes, 136, slices.Concat(forge.Neighbor(is, s.me.mac), ndOption(w)))
				})
			}
		}),
		row("neighbor solicitations of others", func(s *stage, m *magazine) {
			for what, is := range s.others(1) {
				m.expect(s.bridged(), what, func(w []byte) send {
					return icmp(s, is, nodes, 135,
						slices.Concat([]byte{0, 0, 0, 0}, s.pod("near").addrs[1].AsSlice(), []byte{1, 1}, s.me.mac, ndOption(w)))
				})
			}
		}),
		row("duplicate address detection of others' addresses", func(s *stage, m *magazine) {
			for what, is := range s.others(1) {
				m.expect(s.bridged(), what, func(w []byte) send {
					return icmp(s, netip.IPv6Unspecified(), nodes, 135, slices.Concat([]byte{0, 0, 0, 0}, is.AsSlice(), ndOption(w)))
				})
			}
		}),
		row("router advertisements", func(s *stage, m *magazine) {
			from := linkLocal(s.me.mac)
			body := func(w []byte) []byte {
				return forge.ICMPv6(from, nodes, 134, slices.Concat(forge.Router(s.me.mac), ndOption(w)))
			}
			m.expect(s.bridged(), "plain", func(w []byte) send {
				return s.to(allNodes(), packet{src: from, dst: nodes, proto: protoICMPv6, hops: 255, body: body(w)})
			})
			m.expect(s.bridged(), "behind destination options", func(w []byte) send {
				return s.to(allNodes(), packet{
					src: from, dst: nodes, proto: protoDest, hops: 255,
					body: slices.Concat([]byte{protoICMPv6, 0, 1, 4, 0, 0, 0, 0}, body(w)),
				})
			})
			m.expect(s.bridged(), "in a fragment", func(w []byte) send {
				return s.to(allNodes(), packet{
					src: from, dst: nodes, proto: protoFragment, hops: 255,
					body: slices.Concat([]byte{protoICMPv6, 0, 0, 0, 0, 0, 0, 7}, body(w)),
				})
			})
		}),
		row("redirects", func(s *stage, m *magazine) {
			for i, dst := range []netip.Addr{s.pod("near").addrs[0], s.pod("near").addrs[1]} {
				inner := datagram(dst, s.pod("friend").addrs[i], []byte("12345678")).bytes()
				// A router forwards IPv4's as any other packet, but nothing of a link-local source.
				arrives := s.bridged() || i == 0 && !s.translated()
				m.expect(arrives, familyName(i), func(w []byte) send {
					if i == 0 {
						p := packet{
							src: s.gateway[0], dst: dst, proto: protoICMP,
							body: icmp4(5, 1, slices.Concat(s.me.addrs[0].AsSlice(), inner, w)),
						}
						return s.to(s.way(dst), p)
					}
					body := slices.Concat([]byte{0, 0, 0, 0}, s.me.addrs[1].AsSlice(), s.pod("friend").addrs[1].AsSlice(), ndOption(w))
					return s.to(s.way(dst), packet{
						src: linkLocal(s.router), dst: dst, proto: protoICMPv6, hops: 255,
						body: forge.ICMPv6(linkLocal(s.router), dst, 137, body),
					})
				})
			}
		}),
		row("answers of a DHCP server", func(s *stage, m *magazine) {
			forge := func(what string, to mac, dst netip.Addr, from, port uint16) {
				// Who joins a guest's wire has the node take for itself what is for a neighbor, and route it.
				routed := s.joined() && dst == s.pod("near").addrs[0]
				m.expect(s.bridged() || routed, what, func(w []byte) send {
					src := s.me.addrs[0]
					if dst.Is6() {
						src = linkLocal(s.me.mac)
					}
					return s.to(to, packet{
						src: src, dst: dst, proto: protoUDP, body: forge.UDP(netip.AddrPortFrom(src, from), netip.AddrPortFrom(dst, port), w),
					})
				})
			}
			forge("to all", broadcast(), netip.MustParseAddr("255.255.255.255"), 67, 68)
			forge("to one", s.pod("near").mac, s.pod("near").addrs[0], 67, 68)
			forge("DHCPv6 to one", s.pod("near").mac, linkLocal(s.pod("near").mac), 547, 546)
			forge("DHCPv6 to a group", allNodes(), nodes, 547, 546)
		}),
	}
}
