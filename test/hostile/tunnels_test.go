// SPDX-License-Identifier: Apache-2.0

package hostile_test

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/weft-net/weft/internal/nettest/forge"
)

// inner is a packet that a tunnel is to bring somewhere: in the name of an allowed peer to a closed pod, or to the node
// itself.
type inner struct {
	what   string
	family int
	node   bool // it is to the node
	data   func(w []byte) packet
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
		outside := []netip.Addr{netip.MustParseAddr("203.0.113.9"), netip.MustParseAddr("2001:db8:ff::9")}[i]
		add := func(what string, src, dst netip.Addr) {
			out = append(out, inner{familyName(i) + " " + what, i, dst == node, func(w []byte) packet {
				return datagram(src, dst, w)
			}})
		}
		add("of an allowed peer to a closed pod", peer, dst)
		add("of the attacker to a closed pod", s.me.addrs[i], dst)
		add("of an allowed peer to the node", peer, node)
		add("of outside of the cluster to the node", outside, node)
	}
	return out
}

// unwrapped are the places where what was in a tunnel packet may not arrive. The tunnel packet itself may be seen by a
// node's raw sockets and on the wire, it does no harm there.
func unwrapped(s *stage) []string { return append(allPods(s), "socket:n1", "socket:n2") }

// wrap makes tunnel packets of one kind.
type wrap struct {
	name string
	// port is that of UDP over IPv4 and over IPv6, else the protocol of IP.
	port  [2]uint16
	proto byte
	// payload is what is in it; outer is the family outside.
	payload func(s *stage, p packet, target, outer int) []byte
	// opens reports whether the nodes have a tunnel that takes the packet out, by the families outside and inside.
	opens func(w *world, outer, in int) bool
	// kernel says why not all of it is taken out everywhere.
	kernel string
}

func wraps() []wrap {
	plain := func(_ *stage, p packet, _, _ int) []byte { return p.bytes() }
	frame := func(s *stage, p packet, target, outer int) []byte {
		to, from := broadcast(), mac{2, 0, 0, 0, 0, 0x66}
		if s.vteps[0][0] != nil {
			to, from = s.vteps[outer][target], s.vteps[outer][1-target]
		}
		return forge.Ether(to, from, forge.KindOf(p.src), p.bytes())
	}
	const remote = "where no tunnel of this kind, or not of this family, listens"
	return []wrap{
		{
			name: "VXLAN with the right network and Ethernet address", port: [2]uint16{8472, 8472}, kernel: remote,
			payload: func(s *stage, p packet, target, outer int) []byte { return vxlan(1, frame(s, p, target, outer)) },
			opens:   func(w *world, _, _ int) bool { return w.backend == "vxlan" },
		},
		{
			name: "VXLAN of another network", port: [2]uint16{8472, 8472}, kernel: "the tunnel takes none of a wrong network",
			payload: func(s *stage, p packet, target, outer int) []byte { return vxlan(77, frame(s, p, target, outer)) },
		},
		{
			name: "flannel's UDP", port: [2]uint16{8285, 8285}, payload: plain, kernel: remote,
			opens: func(w *world, outer, in int) bool { return w.backend == "udp" && outer == in },
		},
		{
			name: "IPIP", proto: protoIPIP, payload: plain, kernel: remote,
			opens: func(w *world, _, in int) bool { return w.backend == "ipip" && in == 0 },
		},
		{
			name: "SIT", proto: protoSIT, payload: plain, kernel: remote,
			opens: func(w *world, _, in int) bool { return w.backend == "ipip" && in == 1 },
		},
		{
			name: "WireGuard without a key", port: [2]uint16{51820, 51821}, kernel: "the tunnel takes none without a key",
			payload: func(_ *stage, p packet, _, _ int) []byte {
				return slices.Concat([]byte{4, 0, 0, 0}, make([]byte, 12), p.bytes(), make([]byte, 16))
			},
		},
	}
}

// tunnels are packets of each kind to the nodes, whatever the mesh is made of.
func tunnels() []attack {
	var out []attack
	for _, t := range wraps() {
		row := func(source string, levels string, shot func(s *stage, target, outer int, data []byte) send) {
			out = append(out, attack{
				area: "tunnel packets", name: t.name + ", " + source, levels: levels, from: "mallory", at: unwrapped,
				kernel: t.kernel, lan: source != others,
				shots: func(s *stage, m *magazine) {
					each(s, func(what string, target, outer int, in inner) {
						m.expect(t.arrives(s, source, target, outer, in), what, func(w []byte) send {
							return shot(s, target, outer, t.payload(s, in.data(w), target, outer))
						})
					})
				},
			})
		}
		if t.proto == 0 {
			row(bySocket, "a", func(s *stage, target, outer int, data []byte) send {
				return send{To: netip.AddrPortFrom(s.w.nodes[target].addrs[outer], t.port[outer]), Datagram: data}
			})
		}
		row(own, "bcd", func(s *stage, target, outer int, data []byte) send {
			dst := s.w.nodes[target].addrs[outer]
			return s.to(s.way(dst), t.outer(s.me.addrs[outer], dst, data))
		})
		row(others, "bcd", func(s *stage, target, outer int, data []byte) send {
			dst := s.w.nodes[target].addrs[outer]
			return s.to(s.way(dst), t.outer(s.w.nodes[1-target].addrs[outer], dst, data))
		})
	}
	return out
}

// In which name a tunnel packet is.
const bySocket, own, others = "by a socket", "in its own name", "in another node's name"

// arrives reports whether what is in a tunnel packet gets where it is to, where no guard is.
func (t wrap) arrives(s *stage, source string, target, outer int, in inner) bool {
	switch {
	case t.opens == nil || !t.opens(s.w, outer, in.family):
		return false
	case source == others && target == 1 && outer == 0: // a router takes no packet of its own address from a link
		return false
	case s.w.onWire():
		// A macvlan does not reach its own node, a pod has no route to any, and no node has one to what is on the wire.
		return source != bySocket && (target == 1 || s.w.design == "ipvlan") && in.node
	}
	return true
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
	if t.proto != 0 {
		return packet{src: src, dst: dst, proto: t.proto, body: payload}
	}
	return packet{
		src: src, dst: dst, proto: protoUDP,
		body: forge.UDP(netip.AddrPortFrom(src, 4000), netip.AddrPortFrom(dst, t.port[family(dst)]), payload),
	}
}
