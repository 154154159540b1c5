// SPDX-License-Identifier: Apache-2.0

package hostile_test

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// fragments are packets in pieces that a rule may take for others.
func fragments() []attack {
	const reassembled = "the kernel puts the pieces together before it looks, and drops what overlaps"
	return []attack{{
		area: "fragments", name: "tiny fragments to closed pods", levels: "bcd", from: "mallory", at: closedPods,
		shots: func(s *stage, m *magazine) {
			for i := range 2 {
				for what, dst := range s.closed(i) {
					m.pieces(s, familyName(i)+" to "+what, datagram(s.me.addrs[i], dst, nil), dst, false)
				}
			}
		},
		kernel: reassembled, lan: true,
	}, {
		area: "fragments", name: "fragments that overlap the ports to closed pods", levels: "bcd", from: "mallory",
		at: closedPods, kernel: reassembled, lan: true,
		shots: func(s *stage, m *magazine) {
			for i := range 2 {
				for what, dst := range s.closed(i) {
					m.pieces(s, familyName(i)+" to "+what, datagram(s.me.addrs[i], dst, nil), dst, true)
				}
			}
		},
	}, {
		area: "fragments", name: "fragments in others' names", levels: "bcd", from: "mallory", at: mayHear,
		kernel: reassembled,
		shots: func(s *stage, m *magazine) {
			for i := range 2 {
				for what, dst := range s.closed(i) {
					for _, fragment := range []uint16{0x2000, 1} { // the first of more, the second
						m.add(fmt.Sprintf("%s %#x to %s", familyName(i), fragment, what), func(w []byte) send {
							p := datagram(s.pod("friend").addrs[i], dst, slices.Concat(w, w))
							return s.to(s.way(dst), p.piece(p.body, fragment, binary.BigEndian.Uint16(w[5:])))
						})
					}
				}
			}
		},
	}}
}

// piece is a fragment of a packet, with IPv4's field of flags and offset: of IPv6 it has a head of its own.
func (p packet) piece(body []byte, fragment, id uint16) packet {
	if !p.src.Is6() {
		p.body, p.fragment, p.id = body, fragment, id
		return p
	}
	more := fragment >> 13 & 1
	head := binary.BigEndian.AppendUint16([]byte{p.proto, 0}, fragment<<3|more)
	p.body, p.proto = slices.Concat(binary.BigEndian.AppendUint32(head, uint32(id)), body), protoFragment
	return p
}

// pieces adds a datagram of two or three pieces. Overlapping ones name the open port first, and the closed one over
// that.
func (m *magazine) pieces(s *stage, what string, p packet, dst netip.Addr, overlap bool) {
	var body []byte
	var id uint16
	m.add(what+", the end", func(w []byte) send {
		body = udp(netip.AddrPortFrom(p.src, 4000), netip.AddrPortFrom(dst, openPort), slices.Concat(w, w))
		id = binary.BigEndian.Uint16(w[5:]) ^ 0x5555
		return s.to(s.way(dst), p.piece(body[8:], 1, id))
	})
	m.add(what+", the beginning", func(w []byte) send {
		first := slices.Concat(body[:8], w)[:8]
		if overlap {
			other := udp(netip.AddrPortFrom(p.src, 4000), netip.AddrPortFrom(dst, widePort), slices.Concat(w, w))
			first = other[:16]
		}
		return s.to(s.way(dst), p.piece(first, 0x2000, id))
	})
	m.add(what+", the beginning again", func(w []byte) send {
		return s.to(s.way(dst), p.piece(slices.Concat(body[:8], w)[:8], 0x2000, id))
	})
}

// unasked are replies and errors of connections that there never were.
func unasked() []attack {
	row := func(name string, make func(src, dst netip.Addr, w []byte, s *stage) []packet) attack {
		return attack{
			area: "replies and errors not asked for", name: name, levels: "bcd", from: "mallory", at: closedPods, lan: true,
			shots: func(s *stage, m *magazine) {
				for i := range 2 {
					for what, dst := range s.closed(i) {
						for j := range make(s.me.addrs[i], dst, nil, s) {
							m.add(fmt.Sprintf("%s %d to %s", familyName(i), j, what), func(w []byte) send {
								return s.to(s.way(dst), make(s.me.addrs[i], dst, w, s)[j])
							})
						}
					}
				}
			},
		}
	}
	at := netip.AddrPortFrom
	return []attack{
		row("TCP replies", func(src, dst netip.Addr, w []byte, _ *stage) (out []packet) {
			for _, flags := range []byte{18, 16, 4, 20, 17, 0, 0x29} {
				out = append(out, packet{src: src, dst: dst, proto: protoTCP, body: tcp(at(src, 80), at(dst, 40000), flags, w)})
			}
			return out
		}),
		row("UDP answers", func(src, dst netip.Addr, w []byte, _ *stage) (out []packet) {
			for _, port := range []uint16{53, 67, 123, 547} {
				out = append(out, packet{src: src, dst: dst, proto: protoUDP, body: udp(at(src, port), at(dst, 40000), w)})
			}
			return out
		}),
		row("echo replies", func(src, dst netip.Addr, w []byte, _ *stage) []packet {
			if src.Is6() {
				return []packet{
					{src: src, dst: dst, proto: protoICMPv6, body: icmp6(src, dst, 129, slices.Concat([]byte{0, 7, 0, 1}, w))},
				}
			}
			return []packet{{src: src, dst: dst, proto: protoICMP, body: icmp4(0, 0, slices.Concat([]byte{0, 7, 0, 1}, w))}}
		}),
		row("errors about packets that were never sent", func(src, dst netip.Addr, w []byte, s *stage) (out []packet) {
			i := 0
			if src.Is6() {
				i = 1
			}
			for _, peer := range []netip.Addr{src, s.pod("friend").addrs[i]} {
				never := datagram(dst, peer, slices.Concat(w, make([]byte, 32))).bytes()
				if i == 1 {
					for _, kind := range []byte{1, 2, 3, 4} {
						out = append(out, packet{
							src: src, dst: dst, proto: protoICMPv6, body: icmp6(src, dst, kind, slices.Concat([]byte{0, 0, 5, 0}, never)),
						})
					}
					continue
				}
				for _, kind := range []byte{3, 4, 11, 12} {
					out = append(out, packet{
						src: src, dst: dst, proto: protoICMP, body: icmp4(kind, 1, slices.Concat([]byte{0, 0, 5, 0}, never)),
					})
				}
			}
			return out
		}),
	}
}

// insides are the sockets of nodes and of other pods.
func insides(s *stage) []string {
	out := []string{"node:n1", "node:n2", "socket:n1", "socket:n2"}
	for _, p := range allPods(s) {
		out = append(out, "inside:"+strings.TrimPrefix(p, "pod:"))
	}
	return out
}

// nodesOwn are the sockets of nodes, and what is on a loopback interface.
func nodesOwn() []attack {
	loop := []netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.IPv6Loopback()}
	return []attack{{
		area: "nodes and loopback", name: "nodes' sockets, by a pod that may send nothing", levels: "a",
		from: "mute", at: mayHear,
		shots: func(s *stage, m *magazine) {
			for i := range 2 {
				for j, where := range []string{"this node", "another node"} {
					for _, proto := range []bool{false, true} {
						m.add(fmt.Sprintf("%s of %s, TCP %t", familyName(i), where, proto), func(w []byte) send {
							return send{To: netip.AddrPortFrom(s.w.nodes[j].addrs[i], openPort), TCP: proto, Datagram: w}
						})
					}
				}
			}
		},
	}, {
		area: "nodes and loopback", name: "closed pods, by a socket", levels: "a", from: "mallory", at: closedPods, lan: true,
		shots: func(s *stage, m *magazine) {
			for i := range 2 {
				for what, dst := range s.closed(i) {
					m.add(familyName(i)+" to "+what, func(w []byte) send {
						return send{To: netip.AddrPortFrom(dst, openPort), Datagram: w}
					})
				}
			}
		},
	}, {
		area: "nodes and loopback", name: "open pods, by a socket of a pod that may send nothing", levels: "a", from: "mute",
		at: mayHear, lan: true,
		shots: func(s *stage, m *magazine) {
			for i := range 2 {
				for _, name := range []string{"friend", "guest"} {
					m.add(familyName(i)+" to "+name, func(w []byte) send {
						return send{To: netip.AddrPortFrom(s.pod(name).addrs[i], openPort), Datagram: w}
					})
				}
			}
		},
	}, {
		area: "nodes and loopback", name: "closed pods, by host ports and node ports", levels: "a", from: "mallory",
		at: closedPods,
		shots: func(s *stage, m *magazine) {
			for i := range 2 {
				for j, where := range []string{"this node", "another node"} {
					for _, port := range []uint16{hostPort, nodePort, nodePort + 1} {
						m.add(fmt.Sprintf("%s port %d of %s", familyName(i), port, where), func(w []byte) send {
							return send{To: netip.AddrPortFrom(s.w.nodes[j].addrs[i], port), Datagram: w}
						})
					}
				}
			}
		},
	}, {
		area: "nodes and loopback", name: "loopback addresses of nodes and of other pods", levels: "bcd",
		from: "mallory", at: insides,
		kernel: "no host takes a loopback address from a link",
		shots: func(s *stage, m *magazine) {
			for i, dst := range loop {
				for what, to := range map[string]mac{"the node": s.router, "a neighbor": s.pod("near").mac, "all": broadcast()} {
					for _, src := range []netip.Addr{s.me.addrs[i], dst} {
						m.add(fmt.Sprintf("%s of %s from %s", familyName(i), what, src), func(w []byte) send {
							return s.to(to, datagram(src, dst, w))
						})
					}
				}
			}
		},
	}}
}
