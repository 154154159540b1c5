// SPDX-License-Identifier: Apache-2.0

package hostile_test

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/weft-net/weft/internal/nettest/forge"
)

// fragments are packets in pieces that a rule may take for others.
func fragments() []attack {
	each := func(pieces func(m *magazine, s *stage, what string, src, dst netip.Addr), of string) func(*stage, *magazine) {
		return func(s *stage, m *magazine) {
			for i := range 2 {
				src := s.me.addrs[i]
				if of != "" {
					src = s.pod(of).addrs[i]
				}
				for what, dst := range s.closed(i) {
					pieces(m, s, familyName(i)+" to "+what, src, dst)
				}
			}
		}
	}
	return []attack{{
		area: "fragments", name: "tiny fragments to closed pods", levels: "bcd", from: "mallory", at: closedPods, lan: true,
		shots: each((*magazine).tiny, ""),
	}, {
		area: "fragments", name: "fragments that overlap the ports to closed pods", levels: "bcd", from: "mallory",
		at: closedPods, lan: true, kernel: "the kernel drops what overlaps", shots: each((*magazine).overlapping, ""),
	}, {
		area: "fragments", name: "tiny fragments in others' names", levels: "bcd", from: "mallory", at: mayHear,
		shots: each((*magazine).tiny, "friend"),
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

// tiny adds a datagram in two pieces, of which the first is as small as can be, in either order.
func (m *magazine) tiny(s *stage, what string, src, dst netip.Addr) {
	for order, last := range map[string]bool{"the beginning first": false, "the end first": true} {
		m.pieces(true, what+", "+order, func(w []byte) []send {
			p := datagram(src, dst, slices.Concat(w, w))
			out := []send{
				s.to(s.way(dst), p.piece(p.body[:8], 0x2000, pieceID(w))), s.to(s.way(dst), p.piece(p.body[8:], 1, pieceID(w))),
			}
			if last {
				slices.Reverse(out)
			}
			return out
		})
	}
}

// overlapping adds a datagram whose beginning names the open port first, and over that the closed one.
func (m *magazine) overlapping(s *stage, what string, src, dst netip.Addr) {
	m.pieces(false, what, func(w []byte) []send {
		p := datagram(src, dst, slices.Concat(w, w))
		open := forge.UDP(netip.AddrPortFrom(src, 4000), netip.AddrPortFrom(dst, widePort), slices.Concat(w, w))
		return []send{
			s.to(s.way(dst), p.piece(open[:16], 0x2000, pieceID(w))),
			s.to(s.way(dst), p.piece(p.body[:8], 0x2000, pieceID(w))),
			s.to(s.way(dst), p.piece(p.body[8:], 1, pieceID(w))),
		}
	})
}

// pieceID is the identification of a packet in pieces, by its word.
func pieceID(w []byte) uint16 { return uint16(numberOf(w[1:7])) }

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
				out = append(out, packet{src: src, dst: dst, proto: protoTCP, body: forge.TCP(at(src, 80), at(dst, 40000), flags, w)})
			}
			return out
		}),
		row("UDP answers", func(src, dst netip.Addr, w []byte, _ *stage) (out []packet) {
			for _, port := range []uint16{53, 67, 123, 547} {
				out = append(out, packet{src: src, dst: dst, proto: protoUDP, body: forge.UDP(at(src, port), at(dst, 40000), w)})
			}
			return out
		}),
		row("echo replies", func(src, dst netip.Addr, w []byte, _ *stage) []packet {
			if src.Is6() {
				return []packet{
					{src: src, dst: dst, proto: protoICMPv6, body: forge.ICMPv6(src, dst, 129, slices.Concat([]byte{0, 7, 0, 1}, w))},
				}
			}
			return []packet{{src: src, dst: dst, proto: protoICMP, body: icmp4(0, 0, slices.Concat([]byte{0, 7, 0, 1}, w))}}
		}),
		row("errors about answers to packets that were denied", func(src, dst netip.Addr, w []byte, s *stage) []packet {
			asked := datagram(src, dst, w)
			answer := packet{
				src: dst, dst: src, proto: protoUDP,
				body: forge.UDP(netip.AddrPortFrom(dst, openPort), netip.AddrPortFrom(src, 4000), slices.Concat(w, make([]byte, 32))),
			}.bytes()
			if src.Is6() {
				return []packet{asked, {
					src: src, dst: dst, proto: protoICMPv6, body: forge.ICMPv6(src, dst, 1, slices.Concat([]byte{0, 0, 0, 0}, answer)),
				}}
			}
			return []packet{asked, {
				src: src, dst: dst, proto: protoICMP, body: icmp4(3, 1, slices.Concat([]byte{0, 0, 0, 0}, answer)),
			}}
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
							src: src, dst: dst, proto: protoICMPv6, body: forge.ICMPv6(src, dst, kind, slices.Concat([]byte{0, 0, 5, 0}, never)),
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

// port is a datagram, or the beginning of a TCP connection, to a port: by a socket, or by a frame where the attacker can
// send those.
func (s *stage) port(to netip.AddrPort, stream bool, w []byte) send {
	if s.level == ordinary {
		return send{To: to, TCP: stream, Datagram: w}
	}
	i := family(to.Addr())
	// Each of a port of its own: several lead to the same port of a pod.
	from := netip.AddrPortFrom(s.me.addrs[i], uint16(20000+numberOf(w[1:7])%20000))
	p := packet{src: from.Addr(), dst: to.Addr(), proto: protoUDP, body: forge.UDP(from, to, w)}
	if stream {
		p.proto, p.body = protoTCP, forge.TCP(from, to, 2, w)
	}
	return s.to(s.way(to.Addr()), p)
}

// nodesOwn are the sockets of nodes, and what is on a loopback interface.
func nodesOwn() []attack {
	loop := []netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.IPv6Loopback()}
	return []attack{{
		area: "nodes and loopback", name: "nodes' sockets, by a pod that may send nothing", levels: "abcd",
		from: "mute", at: mayHear,
		shots: func(s *stage, m *magazine) {
			for i := range 2 {
				for j, where := range []string{"this node", "another node"} {
					for _, proto := range []bool{false, true} {
						m.add(fmt.Sprintf("%s of %s, TCP %t", familyName(i), where, proto), func(w []byte) send {
							return s.port(netip.AddrPortFrom(s.w.nodes[j].addrs[i], openPort), proto, w)
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
		area: "nodes and loopback", name: "closed pods, by host ports and node ports", levels: "abcd",
		from: "mallory", at: closedPods,
		shots: func(s *stage, m *magazine) {
			for i := range 2 {
				for j, where := range []string{"this node", "another node"} {
					for _, port := range []uint16{hostPort, nodePort, nodePort + 1} {
						m.add(fmt.Sprintf("%s port %d of %s", familyName(i), port, where), func(w []byte) send {
							return s.port(netip.AddrPortFrom(s.w.nodes[j].addrs[i], port), false, w)
						})
					}
				}
			}
		},
	}, {
		area: "nodes and loopback", name: "loopback addresses of nodes and of other pods", levels: "bcd",
		from: "mallory", at: insides,
		kernel: "but for IPv4 at a node, no host takes a loopback address from a link",
		shots: func(s *stage, m *magazine) {
			for i, dst := range loop {
				for what, to := range map[string]mac{"the node": s.router, "a neighbor": s.pod("near").mac, "all": broadcast()} {
					for _, src := range []netip.Addr{s.me.addrs[i], dst} {
						// Port mappings have a node route what is for its loopback.
						arrives := i == 0 && src != dst && !s.translated() &&
							(what != "a neighbor" || s.joined() && !s.w.bridged())
						m.expect(arrives, fmt.Sprintf("%s of %s from %s", familyName(i), what, src), func(w []byte) send {
							return s.to(to, datagram(src, dst, w))
						})
					}
				}
			}
		},
	}}
}
