// SPDX-License-Identifier: Apache-2.0

package hostile_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/weft-net/weft/internal/nettest/forge"
)

// neighborTypes are the messages that every network lets through between neighbors, and the rest of ICMPv6, to other
// nodes.
func neighborTypes() []attack {
	row := func(name, from string, at func(*stage) []string, kinds []byte, hops byte, kernel string) attack {
		return attack{
			area: "ICMPv6", name: name, levels: "bcd", from: from, at: at, kernel: kernel, lan: from == "mallory" && hops != 255,
			shots: func(s *stage, m *magazine) {
				to := map[string]netip.Addr{"a closed pod": s.pod("far").addrs[1]}
				if from == "mute" {
					to = map[string]netip.Addr{"a pod": s.pod("guest").addrs[1], "another node": s.w.nodes[1].addrs[1]}
				}
				for what, dst := range to {
					for _, kind := range kinds {
						arrives := kind != 133 || !s.joined() // which the pod answers itself
						m.expect(arrives, fmt.Sprintf("type %d to %s", kind, what), func(w []byte) send {
							body := forge.ICMPv6(s.me.addrs[1], dst, kind, slices.Concat(make([]byte, 20), w, make([]byte, 400)))
							return s.to(s.way(dst), packet{src: s.me.addrs[1], dst: dst, proto: protoICMPv6, hops: hops, body: body})
						})
					}
				}
			},
		}
	}
	discovery := []byte{133, 134, 135, 136, 137}
	const late = "router solicitations of a guest get no farther than its pod, where a program joins them"
	rest := []byte{
		1, 2, 3, 4, 100, 128, 129, 130, 131, 132, 138, 139, 140, 141, 142, 143, 144, 145, 147, 148, 149, 151, 152, 153, 155,
		157, 158, 200, 255,
	}
	return []attack{
		row("neighbor discovery to a closed pod of another node", "mallory", closedPods, discovery, 64, late),
		row("neighbor discovery with hop limit 255 to a closed pod of another node", "mallory", closedPods,
			discovery, 255, late),
		row("neighbor discovery out of a pod that may send nothing", "mute", remote, discovery, 64, late),
		row("neighbor discovery with hop limit 255 out of a pod that may send nothing", "mute", remote,
			discovery, 255, late),
		row("all other types to a closed pod of another node", "mallory", closedPods, rest, 64, ""),
		row("all other types out of a pod that may send nothing", "mute", remote, rest, 64, ""),
	}
}

// remote are all places that are not on the attacker's node, which answers for itself.
func remote(s *stage) []string {
	return slices.DeleteFunc(mayHear(s), func(p string) bool { return p == "node:n1" })
}

// everyMAC is what a packet socket can say to each Ethernet address in reach.
func everyMAC() []attack {
	macs := func(s *stage) map[string]mac {
		out := map[string]mac{
			"a neighbor": s.pod("near").mac, "an open pod": s.pod("friend").mac, "a pod of another node": s.pod("far").mac,
			"the router":            s.router,
			"this node's interface": s.w.nodes[0].mac, "another node's interface": s.w.nodes[1].mac, "all": broadcast(),
			"a group": allNodes(), "switches": {1, 0x80, 0xc2, 0, 0, 0},
		}
		if v := s.vteps[0][0]; v != nil {
			out["this node's tunnel"], out["another node's tunnel"] = v, s.vteps[0][1]
		}
		return out
	}
	const others = "a router takes no frame for another host, nor one of a protocol that it does not know"
	out := []attack{{
		area: "every Ethernet address", name: "other protocols than IP", levels: "bcd", from: "mute", at: allPods,
		kernel: others,
		shots: func(s *stage, m *magazine) {
			for what, dst := range macs(s) {
				for _, kind := range []uint16{60, 0x88b5, 0x88cc, 0x8847, 0x8863, 0x8864, 0x888e, 0x88e5, 0x22f0} {
					arrives := s.bridged() && !slices.Equal(dst, s.router)
					m.expect(arrives, fmt.Sprintf("%#x to %s", kind, what), func(w []byte) send {
						return send{
							Link: "eth0", Frame: forge.Ether(dst, s.me.mac, kind, slices.Concat([]byte{0x42, 0x42, 3}, w, make([]byte, 49))),
						}
					})
				}
			}
		},
	}}
	for i := range 2 {
		out = append(out, attack{
			area: "every Ethernet address", name: familyName(i) + " of a pod that may send nothing", levels: "bcd", from: "mute",
			at: mayHear, kernel: others,
			shots: func(s *stage, m *magazine) {
				for what, to := range macs(s) {
					for targets, dst := range map[string]netip.Addr{
						"an open pod": s.pod("friend").addrs[i], "an open pod of another node": s.pod("guest").addrs[i],
						"another node": s.w.nodes[1].addrs[i],
					} {
						arrives := s.bridged() || s.joined() || slices.Equal(to, s.router)
						m.expect(arrives, targets+" by "+what, func(w []byte) send { return s.to(to, datagram(s.me.addrs[i], dst, w)) })
					}
				}
			},
		})
	}
	return out
}

// tags are frames with VLAN tags.
func tags() []attack {
	// What is tagged with 0 has no VLAN. An ipvlan looks for the destination behind one tag.
	none := func(s *stage, tag string) bool {
		return tag == "the tag 0" || tag == "two tags of the tag 0" && s.w.design != "ipvlan"
	}
	wrap := map[string]func([]byte) []byte{
		"a tag":                    func(f []byte) []byte { return forge.Tagged(f, typeVLAN, 7) },
		"the tag 0":                func(f []byte) []byte { return forge.Tagged(f, typeVLAN, 0) },
		"the tag 1":                func(f []byte) []byte { return forge.Tagged(f, typeVLAN, 1) },
		"a tag of providers":       func(f []byte) []byte { return forge.Tagged(f, typeQinQ, 7) },
		"two tags":                 func(f []byte) []byte { return forge.Tagged(forge.Tagged(f, typeVLAN, 7), typeQinQ, 8) },
		"two tags of the tag 0":    func(f []byte) []byte { return forge.Tagged(forge.Tagged(f, typeVLAN, 0), typeVLAN, 0) },
		"two tags, the outer is 1": func(f []byte) []byte { return forge.Tagged(forge.Tagged(f, typeVLAN, 7), typeVLAN, 1) },
	}
	const untagged = "a router takes no frame of a VLAN that it has no device for"
	return []attack{{
		area: "VLAN tags", name: "tagged packets to closed pods", levels: "bcd", from: "mallory", at: closedPods,
		kernel: untagged, lan: true,
		shots: func(s *stage, m *magazine) {
			for i := range 2 {
				for what, dst := range s.closed(i) {
					for tag, f := range wrap {
						m.expect(none(s, tag) || s.adjacent(dst), tag+", "+familyName(i)+" to "+what, func(w []byte) send {
							return send{Link: "eth0", Frame: f(s.to(s.way(dst), datagram(s.me.addrs[i], dst, w)).Frame)}
						})
					}
				}
			}
		},
	}, {
		area: "VLAN tags", name: "tagged packets in others' names", levels: "bcd", from: "mallory", at: mayHear,
		kernel: untagged,
		shots: func(s *stage, m *magazine) {
			for i := range 2 {
				for what, dst := range s.victims(i) {
					for tag, f := range wrap {
						m.expect(none(s, tag) || s.adjacent(dst), tag+", "+familyName(i)+" to "+what, func(w []byte) send {
							return send{Link: "eth0", Frame: f(s.to(s.way(dst), datagram(s.pod("friend").addrs[i], dst, w)).Frame)}
						})
					}
				}
			}
		},
	}}
}

// extensions are packets whose header is longer than most.
func extensions() []attack {
	four := func(dst netip.Addr) map[string][]byte {
		at := dst.AsSlice()
		return map[string][]byte{
			"loose source route":  slices.Concat([]byte{131, 7, 4}, at, []byte{0}),
			"strict source route": slices.Concat([]byte{137, 7, 4}, at, []byte{0}),
			"record route":        {7, 7, 4, 0, 0, 0, 0, 0}, "timestamp": {68, 8, 5, 0, 0, 0, 0, 0},
			"router alert": {148, 4, 0, 0}, "no operation": {1, 1, 1, 1},
			"security": {130, 4, 0, 0},
		}
	}
	type extension struct {
		next byte
		head func(next byte, dst netip.Addr) []byte
		// taken reports whether a host takes what is behind it.
		taken bool
	}
	fixed := func(head ...byte) func(byte, netip.Addr) []byte {
		return func(next byte, _ netip.Addr) []byte { return slices.Concat([]byte{next}, head) }
	}
	six := map[string]extension{
		"hop-by-hop options":  {0, fixed(0, 1, 4, 0, 0, 0, 0), true},
		"destination options": {protoDest, fixed(0, 1, 4, 0, 0, 0, 0), true},
		"an atomic fragment":  {protoFragment, fixed(0, 0, 0, 0, 0, 0, 9), true},
		"a spent routing header": {protoRouting, func(n byte, dst netip.Addr) []byte {
			return slices.Concat([]byte{n, 2, 4, 0, 0, 0, 0, 0}, dst.AsSlice())
		}, false},
		"a routing header": {protoRouting, func(n byte, dst netip.Addr) []byte {
			return slices.Concat([]byte{n, 2, 0, 1, 0, 0, 0, 0}, dst.AsSlice())
		}, false},
		"a segment routing header": {protoRouting, func(n byte, dst netip.Addr) []byte {
			return slices.Concat([]byte{n, 2, 4, 1, 0, 0, 0, 0}, dst.AsSlice())
		}, false},
		"a header of no next one's": {protoDest, func(byte, netip.Addr) []byte {
			return []byte{59, 0, 1, 4, 0, 0, 0, 0}
		}, false},
	}
	row := func(name string, at func(*stage) []string, lan bool, source func(s *stage, i int) netip.Addr) attack {
		return attack{
			area: "IP options and extension headers", name: name, levels: "bcd", from: "mallory", at: at,
			kernel: "source routes are not forwarded, and no host takes what is behind routing headers", lan: lan,
			shots: func(s *stage, m *magazine) {
				for what, dst := range s.closed(0) {
					for option, bytes := range four(dst) {
						arrives := !strings.HasSuffix(option, "source route") || s.adjacent(dst)
						m.expect(arrives, option+" to "+what, func(w []byte) send {
							p := datagram(source(s, 0), dst, w)
							p.options = bytes
							return s.to(s.way(dst), p)
						})
					}
				}
				for what, dst := range s.closed(1) {
					for option, h := range six {
						m.expect(h.taken || !s.w.onWire(), option+" to "+what, func(w []byte) send {
							p := datagram(source(s, 1), dst, w)
							p.body, p.proto = slices.Concat(h.head(p.proto, dst), p.body), h.next
							return s.to(s.way(dst), p)
						})
					}
				}
			},
		}
	}
	return []attack{
		row("to closed pods", closedPods, true, func(s *stage, i int) netip.Addr { return s.me.addrs[i] }),
		row("in others' names", mayHear, false, func(s *stage, i int) netip.Addr { return s.pod("friend").addrs[i] }),
	}
}
