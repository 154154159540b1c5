// SPDX-License-Identifier: Apache-2.0

package hostile_test

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/state"
)

// attack is a row of the table.
type attack struct {
	area, name string
	// levels are who tries it.
	levels string
	// from is the pod that attacks: mallory, which no policy selects, or mute, which may send nothing.
	from string
	// at are the places where nothing of it may arrive.
	at func(*stage) []string
	// shots makes the packets.
	shots func(*stage, *magazine)
	// kernel says why the kernel itself lets nothing or not all of it through, with or without weft; "" where all must
	// arrive without the guard.
	kernel string
	// lan: it is tried from an interface that has no end on the attacker's node, too. Who receives it refuses it or, where
	// the attacker has no capabilities, the pod's own rules.
	lan bool
	// only are the designs and back ends in which it is tried; none: in all.
	only []string
}

func (a attack) applies(w *world, l level) bool {
	return strings.Contains(a.levels, string(l)) &&
		(len(a.only) == 0 || slices.Contains(a.only, w.design) || slices.Contains(a.only, w.backend))
}

// table is every attack that is packets alone. Others have tests of their own.
func table() []attack {
	return slices.Concat(forged(), forgedMACs(), unlisted(), claims(), tunnels(), neighborTypes(), everyMAC(), tags(),
		extensions(), fragments(), unasked(), nodesOwn())
}

// shot is one packet, and the word by which it is known.
type shot struct {
	send
	what string
	word int
}

// magazine collects the shots of a row.
type magazine struct {
	next  *int
	shots []shot
}

func (m *magazine) add(what string, build func(word []byte) send) {
	*m.next++
	m.shots = append(m.shots, shot{build(wordOf(*m.next)), what, *m.next})
}

// stage is what an attacker knows.
type stage struct {
	w       *world
	level   level
	me      *pod
	gateway [2]netip.Addr
	// router is the Ethernet address of the way out.
	router mac
	// vteps are those of the nodes' tunnel devices, by family, where there are any.
	vteps [2][2]mac
}

func (w *world) stage(me *pod, l level) *stage {
	s := &stage{w: w, level: l, me: me}
	switch w.design {
	case "routed":
		s.gateway = [2]netip.Addr{netip.MustParseAddr("169.254.1.1"), netip.MustParseAddr("fe80::ecee:eeff:feee:eeee")}
		s.router = mac{0xee, 0xee, 0xee, 0xee, 0xee, 0xee}
	case "macvlan", "ipvlan": // they are all neighbors
	default:
		for i, c := range me.node.podCIDRs {
			s.gateway[i] = netip.MustParsePrefix(c).Addr().Next()
		}
		s.router = linkMAC(w, me.node.ns, bridgeName(w.design))
	}
	if w.binding == model.VMMasquerade {
		s.gateway = [2]netip.Addr{netip.MustParseAddr("10.0.2.1"), netip.MustParseAddr("fe80::1")}
		s.router = mac{2, 0, 0, 0, 0, 0}
	}
	if w.backend == "vxlan" {
		for i, link := range []string{"flannel.1", "flannel-v6.1"} {
			for j, n := range w.nodes {
				// A node begins with an address that comes from its name; the attacker knows the one that stays.
				first := state.SeedMAC(fmt.Sprintf("vtep/%d/%s", 4+2*i, n.name)).String()
				w.until("the random address of "+link+" of "+n.name, func() bool {
					s.vteps[i][j] = linkMAC(w, n.ns, link)
					return net.HardwareAddr(s.vteps[i][j]).String() != first
				})
			}
		}
	}
	return s
}

func bridgeName(design string) string {
	if design == "flannel" {
		return "cni0"
	}
	return "weft0"
}

func (s *stage) pod(name string) *pod { return s.w.pods[name] }

// mayHear are all places but the attacker's own.
func mayHear(s *stage) []string {
	return slices.Concat(allPods(s), []string{"node:n1", "node:n2", "socket:n1", "socket:n2", "wire"})
}

func allPods(s *stage) (out []string) {
	for name := range s.w.pods {
		if name != s.me.name { // who may well hear that it was refused
			out = append(out, "pod:"+name)
		}
	}
	return out
}

// closedPods are those that only friends may reach.
func closedPods(*stage) []string { return []string{"pod:near", "pod:far"} }

func (s *stage) to(dst mac, p packet) send {
	return send{Link: "eth0", Frame: ether(dst, s.me.mac, kindOf(p.src), p.bytes())}
}

// datagram is a UDP packet to openPort.
func datagram(src, dst netip.Addr, word []byte) packet {
	return packet{
		src: src, dst: dst, proto: protoUDP,
		body: udp(netip.AddrPortFrom(src, 4000), netip.AddrPortFrom(dst, openPort), word),
	}
}

// way is the Ethernet address by which a packet goes to a destination: on a bridge a pod of the same node is a
// neighbor.
func (s *stage) way(dst netip.Addr) mac {
	if s.w.onWire() {
		return s.w.neighbor(dst)
	}
	if s.w.design != "routed" && s.w.binding != model.VMMasquerade {
		for _, p := range s.w.pods {
			if p.node == s.me.node && slices.Contains(p.addrs, dst) {
				return p.mac
			}
		}
	}
	return s.router
}

// neighbor is the Ethernet address of a pod or a node where all are on one wire.
func (w *world) neighbor(is netip.Addr) mac {
	for _, p := range w.pods {
		if slices.Contains(p.addrs, is) {
			return p.mac
		}
	}
	for _, n := range w.nodes {
		if slices.Contains(n.addrs, is) {
			return n.mac
		}
	}
	w.Fatalf("%s is no address of the world", is)
	return nil
}

// victims are pods of this and of the other node, and the nodes themselves, by family.
func (s *stage) victims(i int) map[string]netip.Addr {
	return map[string]netip.Addr{
		"a pod of this node": s.pod("near").addrs[i], "a pod of another node": s.pod("far").addrs[i],
		"this node": s.w.nodes[0].addrs[i], "another node": s.w.nodes[1].addrs[i],
	}
}

// closed are the two pods that only friends may reach.
func (s *stage) closed(i int) map[string]netip.Addr {
	v := s.victims(i)
	return map[string]netip.Addr{
		"a closed pod of this node": v["a pod of this node"], "a closed pod of another node": v["a pod of another node"],
	}
}

func familyName(i int) string { return []string{"IPv4", "IPv6"}[i] }

// forged are packets in others' names.
func forged() []attack {
	type source struct {
		name, kernel string
		of           func(s *stage, i int) netip.Addr
	}
	fixed := func(four, six string) func(*stage, int) netip.Addr {
		return func(_ *stage, i int) netip.Addr { return netip.MustParseAddr([]string{four, six}[i]) }
	}
	ofPod := func(name string) func(*stage, int) netip.Addr {
		return func(s *stage, i int) netip.Addr { return s.pod(name).addrs[i] }
	}
	const martian = "no host takes such a source from a link"
	sources := []source{
		{"a neighbor", "", ofPod("near")},
		{"an allowed peer of this node", "", ofPod("friend")},
		{"an allowed peer of another node", "", ofPod("guest")},
		{
			"this node", "a host takes no packet of its own address from a link",
			func(s *stage, i int) netip.Addr { return s.w.nodes[0].addrs[i] },
		},
		{
			"another node", "a host takes no packet of its own address from a link",
			func(s *stage, i int) netip.Addr { return s.w.nodes[1].addrs[i] },
		},
		{
			"the gateway", "a host takes no packet of its own address from a link",
			func(s *stage, i int) netip.Addr { return s.gateway[i] },
		},
		{"loopback", martian, fixed("127.0.0.1", "::1")},
		{"no address", martian, fixed("0.0.0.0", "::")},
		{"a multicast group", martian, fixed("224.0.0.5", "ff02::5")},
		{"an address that no pod has", "", fixed("10.99.1.14", "fd99:0:0:1::c8")},
		{"outside of the cluster", "", fixed("203.0.113.9", "2001:db8:ff::9")},
	}
	var out []attack
	for _, src := range sources {
		for i := range 2 {
			out = append(out, attack{
				area: "forged sources", name: familyName(i) + " source of " + src.name, levels: "bcd", from: "mallory", at: mayHear,
				kernel: src.kernel,
				shots: func(s *stage, m *magazine) {
					for what, dst := range s.victims(i) {
						if from := src.of(s, i); from != dst {
							m.add("to "+what, func(w []byte) send { return s.to(s.way(dst), datagram(from, dst, w)) })
						}
					}
				},
			})
		}
	}
	return append(out, attack{
		area: "forged sources", name: "IPv6 source of others, by a socket that binds to it", levels: "a",
		from: "mallory", at: mayHear,
		kernel: "no host takes such a source from a link",
		shots: func(s *stage, m *magazine) {
			for _, src := range sources {
				for what, dst := range s.victims(1) {
					from := src.of(s, 1)
					if from != dst && !from.IsMulticast() && !from.IsUnspecified() && !from.IsLinkLocalUnicast() &&
						!from.IsLoopback() {
						m.add(src.name+" to "+what, func(w []byte) send {
							return send{From: netip.AddrPortFrom(from, 4000), To: netip.AddrPortFrom(dst, openPort), Datagram: w}
						})
					}
				}
			}
		},
	})
}

// unlisted are packets in names that no policy of the receiver allows, of interfaces whose sources the attacker's node
// cannot check.
func unlisted() []attack {
	var out []attack
	for i := range 2 {
		out = append(out, attack{
			area: "forged sources", name: familyName(i) + " sources that are not allowed, over macvlan and ipvlan", levels: "bc",
			from: "mallory", at: closedPods, lan: true, only: []string{"macvlan", "ipvlan"},
			shots: func(s *stage, m *magazine) {
				for what, dst := range s.closed(i) {
					for whose, src := range map[string]netip.Addr{
						"the attacker": s.me.addrs[i], "a neighbor": s.pod("mute").addrs[i],
						"nobody": netip.MustParseAddr([]string{"10.99.1.14", "fd99:0:0:1::c8"}[i]),
					} {
						macs := map[string]mac{
							"its own": s.me.mac, "a neighbor's": s.pod("mute").mac, "a stranger's": {2, 0, 0, 0, 0, 0x66},
						}
						if s.w.design == "ipvlan" { // all have the same, and by that a node knows its own pods
							macs = map[string]mac{"its own": s.me.mac}
						}
						for link, from := range macs {
							m.add(fmt.Sprintf("of %s with %s Ethernet address to %s", whose, link, what), func(w []byte) send {
								return send{Link: "eth0", Frame: ether(s.way(dst), from, kindOf(dst), datagram(src, dst, w).bytes())}
							})
						}
					}
				}
			},
		})
	}
	return out
}

func forgedMACs() []attack {
	var out []attack
	for name, of := range map[string]func(*stage) mac{
		"a neighbor":  func(s *stage) mac { return s.pod("near").mac },
		"the gateway": func(s *stage) mac { return s.router },
		"the node":    func(s *stage) mac { return s.w.nodes[0].mac },
		"a stranger":  func(*stage) mac { return mac{2, 0, 0, 0, 0, 0x66} },
		"a group":     func(*stage) mac { return mac{3, 0, 0, 0, 0, 0x66} },
	} {
		out = append(out, attack{
			area: "forged sources", name: "Ethernet source of " + name, levels: "bcd", from: "mallory", at: mayHear,
			kernel: "a bridge takes no frame of its own address or of a group from a port",
			shots: func(s *stage, m *magazine) {
				for i := range 2 {
					for what, dst := range s.victims(i) {
						m.add(familyName(i)+" to "+what, func(w []byte) send {
							return send{Link: "eth0", Frame: ether(s.way(dst), of(s), kindOf(dst), datagram(s.me.addrs[i], dst, w).bytes())}
						})
					}
				}
			},
		})
	}
	slices.SortFunc(out, func(a, b attack) int { return strings.Compare(a.name, b.name) })
	return out
}
