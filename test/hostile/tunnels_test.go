// SPDX-License-Identifier: Apache-2.0

package hostile_test

import (
	"fmt"
	"net/netip"
	"slices"
)

// inner is a packet that a tunnel is to bring somewhere: in the name of an allowed peer to a closed pod, or to the node
// itself.
type inner struct {
	what string
	data func(w []byte) packet
}

// inners are what an attacker would have a node unwrap.
func (s *stage) inners(target int) []inner {
	var out []inner
	closed := []string{"near", "far"}[target]
	for i := range 2 {
		peer, dst := s.pod("friend").addrs[i], s.pod(closed).addrs[i]
		if target == 0 {
			peer = s.pod("guest").addrs[i]
		}
		node := s.w.nodes[target].addrs[i]
		stranger := []netip.Addr{netip.MustParseAddr("203.0.113.9"), netip.MustParseAddr("2001:db8:ff::9")}[i]
		out = append(out,
			inner{
				familyName(i) + " of an allowed peer to a closed pod", func(w []byte) packet { return datagram(peer, dst, w) },
			},
			inner{
				familyName(i) + " of the attacker to a closed pod",
				func(w []byte) packet { return datagram(s.me.addrs[i], dst, w) },
			},
			inner{familyName(i) + " of an allowed peer to the node", func(w []byte) packet { return datagram(peer, node, w) }},
			inner{familyName(i) + " of a stranger to the node", func(w []byte) packet { return datagram(stranger, node, w) }},
		)
	}
	return out
}

// unwrapped are the places where what was in a tunnel packet may not arrive. The tunnel packet itself may be seen by a
// node's raw sockets and on the wire, it does no harm there.
func unwrapped(s *stage) []string { return append(allPods(s), "socket:n1", "socket:n2") }

// wrap makes tunnel packets of one kind.
type wrap struct {
	name string
	// port of UDP, else the protocol of IP.
	port  uint16
	proto byte
	// payload is what is in it: by the family of what is inside, with the right keys or wrong ones.
	payload func(s *stage, p packet, target int, right bool) []byte
	// backend is the one that unwraps it.
	backend string
}

func wraps() []wrap {
	family := func(p packet) int {
		if p.src.Is6() {
			return 1
		}
		return 0
	}
	plain := func(_ *stage, p packet, _ int, _ bool) []byte { return p.bytes() }
	return []wrap{
		{name: "VXLAN", port: 8472, backend: "vxlan", payload: func(s *stage, p packet, target int, right bool) []byte {
			to, from, vni := broadcast(), mac{2, 0, 0, 0, 0, 0x66}, uint32(1)
			if right && s.vteps[0][0] != nil {
				to, from = s.vteps[family(p)][target], s.vteps[family(p)][1-target]
			}
			if !right {
				vni = 77
			}
			return vxlan(vni, ether(to, from, kindOf(p.src), p.bytes()))
		}},
		{name: "flannel's UDP", port: 8285, backend: "udp", payload: plain},
		{name: "IPIP", proto: protoIPIP, backend: "ipip", payload: plain},
		{name: "SIT", proto: protoSIT, payload: plain},
		{name: "WireGuard", port: 51820, payload: func(_ *stage, p packet, _ int, _ bool) []byte {
			// without the key there is no right one
			return slices.Concat([]byte{4, 0, 0, 0}, make([]byte, 12), p.bytes(), make([]byte, 16))
		}},
	}
}

// tunnels are packets of each kind to the nodes, whatever the mesh is made of.
func tunnels() []attack {
	var out []attack
	for _, t := range wraps() {
		kernel := func(right bool) string {
			if !right {
				return "the tunnel takes none of a wrong network or Ethernet address"
			}
			return "no tunnel of this kind, or not of this family, listens there"
		}
		for _, right := range []bool{true, false} {
			name := t.name
			if t.name == "VXLAN" {
				name += map[bool]string{true: " with the right network and Ethernet address", false: " of another network"}[right]
			} else if !right {
				continue
			}
			if t.port != 0 {
				out = append(out, attack{
					area: "tunnel packets", name: name + ", by a socket", levels: "a", from: "mallory", at: unwrapped,
					kernel: kernel(right),
					shots: func(s *stage, m *magazine) {
						each(s, func(what string, target, outer int, in inner) {
							m.add(what, func(w []byte) send {
								return send{
									To:       netip.AddrPortFrom(s.w.nodes[target].addrs[outer], t.port),
									Datagram: t.payload(s, in.data(w), target, right),
								}
							})
						})
					},
				})
			}
			for _, source := range []string{"its own name", "another node's name"} {
				out = append(out, attack{
					area: "tunnel packets", name: name + ", in " + source, levels: "bcd", from: "mallory", at: unwrapped,
					kernel: kernel(right), lan: source == "its own name",
					shots: func(s *stage, m *magazine) {
						each(s, func(what string, target, outer int, in inner) {
							src, dst := s.me.addrs[outer], s.w.nodes[target].addrs[outer]
							if source != "its own name" {
								src = s.w.nodes[1-target].addrs[outer]
							}
							m.add(what, func(w []byte) send {
								return s.to(s.way(dst), t.outer(src, dst, t.payload(s, in.data(w), target, right)))
							})
						})
					},
				})
			}
		}
	}
	return out
}

// each calls f for each node, each family outside and each packet inside.
func each(s *stage, f func(what string, target, outer int, in inner)) {
	for target, where := range []string{"this node", "another node"} {
		for outer := range 2 {
			for _, in := range s.inners(target) {
				f(fmt.Sprintf("%s over %s: %s", where, familyName(outer), in.what), target, outer, in)
			}
		}
	}
}

func (t wrap) outer(src, dst netip.Addr, payload []byte) packet {
	if t.port == 0 {
		return packet{src: src, dst: dst, proto: t.proto, body: payload}
	}
	return packet{
		src: src, dst: dst, proto: protoUDP,
		body: udp(netip.AddrPortFrom(src, 4000), netip.AddrPortFrom(dst, t.port), payload),
	}
}
