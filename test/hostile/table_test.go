// SPDX-License-Identifier: Apache-2.0

package hostile_test

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/nettest/forge"
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
	// kernel says why the kernel itself drops some of it somewhere, with or without weft; "" where all arrives everywhere
	// without the guard. Which packets that are where, each says (magazine.expect).
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

// shot is one packet, in one piece or more, and the word by which it is known.
type shot struct {
	send
	more []send
	what string
	word int
	// dropped: the kernel itself drops it, guard or not. Any other must arrive without the guard.
	dropped bool
}

// magazine collects the shots of a row.
type magazine struct {
	next  *int
	shots []shot
}

// add adds a packet that must arrive without the guard.
func (m *magazine) add(what string, build func(word []byte) send) { m.expect(true, what, build) }

// expect adds a packet, and whether it arrives without the guard.
func (m *magazine) expect(arrives bool, what string, build func(word []byte) send) {
	m.pieces(arrives, what, func(w []byte) []send { return []send{build(w)} })
}

// pieces adds a packet in pieces.
func (m *magazine) pieces(arrives bool, what string, build func(word []byte) []send) {
	*m.next++
	sends := build(wordOf(*m.next))
	m.shots = append(m.shots, shot{sends[0], sends[1:], what, *m.next, !arrives})
}

// stage is what an attacker knows.
type stage struct {
	w       *world
	level   level
	me      *pod
	gateway [2]netip.Addr
	// router is the Ethernet address of the fix.
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
	if s.translated() {
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

// translated reports whether the attacker is a guest behind a translation of addresses in its pod.
func (s *stage) translated() bool { return s.w.binding == model.VMMasquerade && s.me.tap != nil }

// bridged reports whether the attacker's frames get to others as they are: by the node's bridge to the pods of its node.
func (s *stage) bridged() bool { return s.w.bridged() && !s.translated() }

// adjacent reports whether frames to a destination pass the node's bridge and nothing else.
func (s *stage) adjacent(dst netip.Addr) bool {
	return s.bridged() && dst == s.pod("near").addrs[family(dst)]
}

// joined reports whether the attacker is a guest whose wire a program joins to the pod's interface, whatever Ethernet
// addresses frames have.
func (s *stage) joined() bool { return s.w.binding == model.VMDirect && s.me.tap != nil }

// ported reports whether the attacker is a guest whose wire is a port of a bridge in its pod, which the pod's interface is
// another port of.
func (s *stage) ported() bool {
	return (s.w.binding == model.VMBridge || s.w.binding == model.VMManagedTap) && s.me.tap != nil
}

// family is 0 of an IPv4 address, 1 of an IPv6 address.
func family(a netip.Addr) int {
	if a.Is6() {
		return 1
	}
	return 0
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
	return send{Link: "eth0", Frame: forge.Ether(dst, s.me.mac, forge.KindOf(p.src), p.bytes())}
}

// datagram is a UDP packet to openPort.
func datagram(src, dst netip.Addr, word []byte) packet {
	return packet{
		src: src, dst: dst, proto: protoUDP,
		body: forge.UDP(netip.AddrPortFrom(src, 4000), netip.AddrPortFrom(dst, openPort), word),
	}
}

// way is the Ethernet address by which a packet goes to a destination: on a bridge a pod of the same node is a
// neighbor.
func (s *stage) way(dst netip.Addr) mac {
	if s.w.onWire() {
		return s.w.neighbor(dst)
	}
	if s.bridged() {
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
		name   string
		kernel [2]string // by family
		of     func(s *stage, i int) netip.Addr
		// arrives reports whether the kernels on the way let it pass; nil: they do.
		arrives func(s *stage, dst netip.Addr) bool
	}
	fixed := func(four, six string) func(*stage, int) netip.Addr {
		return func(_ *stage, i int) netip.Addr { return netip.MustParseAddr([]string{four, six}[i]) }
	}
	ofPod := func(name string) func(*stage, int) netip.Addr {
		return func(s *stage, i int) netip.Addr { return s.pod(name).addrs[i] }
	}
	const own = "a router takes no packet of its own address from a link"
	const martian = "no router takes such a source from a link"
	none, both := [2]string{}, [2]string{martian, martian}
	sources := []source{
		{"a neighbor", none, ofPod("near"), nil},
		{"an allowed peer of this node", none, ofPod("friend"), nil},
		{"an allowed peer of another node", none, ofPod("guest"), nil},
		{
			"this node",
			[2]string{own},
			func(s *stage, i int) netip.Addr { return s.w.nodes[0].addrs[i] },
			func(s *stage, dst netip.Addr) bool {
				return dst.Is6() || s.w.bridged() && dst == s.pod("near").addrs[0]
			},
		},
		{"another node", none, func(s *stage, i int) netip.Addr { return s.w.nodes[1].addrs[i] }, nil},
		{
			"the gateway",
			[2]string{own, own},
			func(s *stage, i int) netip.Addr { return s.gateway[i] },
			func(s *stage, dst netip.Addr) bool {
				return !s.translated() && (dst.Is6() || !s.w.bridged() || s.adjacent(dst))
			},
		},
		{"loopback", both, fixed("127.0.0.1", "::1"), (*stage).adjacent},
		{"no address", both, fixed("0.0.0.0", "::"), func(s *stage, dst netip.Addr) bool {
			return s.adjacent(dst) || !s.translated() && dst == s.w.nodes[0].addrs[1]
		}},
		{"a multicast group", both, fixed("224.0.0.5", "ff02::5"), (*stage).adjacent},
		{"an address that no pod has", none, fixed("10.99.1.14", "fd99:0:0:1::e"), nil},
		{"outside of the cluster", none, fixed("203.0.113.9", "2001:db8:ff::9"), nil},
	}
	var out []attack
	for _, src := range sources {
		for i := range 2 {
			out = append(out, attack{
				area: "forged sources", name: familyName(i) + " source of " + src.name, levels: "bcd", from: "mallory", at: mayHear,
				kernel: src.kernel[i],
				shots: func(s *stage, m *magazine) {
					for what, dst := range s.victims(i) {
						if from := src.of(s, i); from != dst {
							m.expect(src.arrives == nil || src.arrives(s, dst), "to "+what, func(w []byte) send {
								return s.to(s.way(dst), datagram(from, dst, w))
							})
						}
					}
				},
			})
		}
	}
	return append(out, attack{
		area: "forged sources", name: "IPv6 source of others, by a socket that binds to it", levels: "a",
		from: "mallory", at: mayHear,
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
						"nobody": netip.MustParseAddr([]string{"10.99.1.14", "fd99:0:0:1::e"}[i]),
					} {
						macs := map[string]mac{
							"its own": s.me.mac, "a neighbor's": s.pod("mute").mac, "a stranger's": {2, 0, 0, 0, 0, 0x66},
						}
						if s.w.design == "ipvlan" { // all have the same, and by that a node knows its own pods
							macs = map[string]mac{"its own": s.me.mac}
						}
						for link, from := range macs {
							m.add(fmt.Sprintf("of %s with %s Ethernet address to %s", whose, link, what), func(w []byte) send {
								return send{Link: "eth0", Frame: forge.Ether(s.way(dst), from, forge.KindOf(dst), datagram(src, dst, w).bytes())}
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
	kernel := map[string]string{
		"a group":     "a bridge takes no frame of a group from a port",
		"the gateway": "a bridge sends no frame back where it is from",
	}
	var out []attack
	for name, of := range map[string]func(*stage) mac{
		"a neighbor":  func(s *stage) mac { return s.pod("friend").mac },
		"the gateway": func(s *stage) mac { return s.router },
		"the node":    func(s *stage) mac { return s.w.nodes[0].mac },
		"a stranger":  func(*stage) mac { return mac{2, 0, 0, 0, 0, 0x66} },
		"a group":     func(*stage) mac { return mac{3, 0, 0, 0, 0, 0x66} },
	} {
		out = append(out, attack{
			area: "forged sources", name: "Ethernet source of " + name, levels: "bcd", from: "mallory", at: mayHear,
			kernel: kernel[name],
			shots: func(s *stage, m *magazine) {
				for i := range 2 {
					for what, dst := range s.victims(i) {
						arrives := true
						switch name {
						case "a group":
							arrives = !s.w.bridged() && (s.me.tap == nil || s.joined())
						case "the gateway": // in the pod of a guest there is a bridge, too
							arrives = !s.ported() || s.adjacent(dst)
						}
						m.expect(arrives, familyName(i)+" to "+what, func(w []byte) send {
							return send{Link: "eth0", Frame: forge.Ether(s.way(dst), of(s), forge.KindOf(dst), datagram(s.me.addrs[i], dst, w).bytes())}
						})
					}
				}
			},
		})
	}
	slices.SortFunc(out, func(a, b attack) int { return strings.Compare(a.name, b.name) })
	return out
}
