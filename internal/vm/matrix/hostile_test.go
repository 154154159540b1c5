// SPDX-License-Identifier: Apache-2.0

package matrix

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/nettest"
)

// attack is a frame that must be dropped, with a unique marker.
type attack struct {
	name  string
	frame []byte
}

// stage is what an attacker knows: its own addresses, its victim's, and the MAC address of the next hop.
type stage struct {
	mac, to, victim []byte
	own, peer       [2]netip.Addr // by family
	local           netip.Addr    // its link-local address
	gateway         [2]netip.Addr
}

const (
	fence = "HONEST-WORD"
	evil  = "EVIL-%02d-"
)

// attacks returns frames with a unique marker each.
func (s stage) attacks() []attack {
	var out []attack
	every, other := []byte{255, 255, 255, 255, 255, 255}, []byte{2, 0, 0, 0, 0, 0x66}
	nodes, routers := netip.MustParseAddr("ff02::1"), []byte{0x33, 0x33, 0, 0, 0, 1}
	add := func(name string, make func(word []byte) []byte) {
		out = append(out, attack{name, make(fmt.Appendf(nil, evil, len(out)))})
	}
	packet := func(mac []byte, src, dst netip.Addr, word []byte, ports ...uint16) []byte {
		from, to := uint16(4000), uint16(4000)
		if len(ports) == 2 {
			from, to = ports[0], ports[1]
		}
		return ether(s.to, mac, kindOf(src),
			ip(src, dst, protoUDP, udp(netip.AddrPortFrom(src, from), netip.AddrPortFrom(dst, to), word)))
	}
	foreign := [2]netip.Addr{netip.MustParseAddr("10.244.1.77"), netip.MustParseAddr("fd00:1::77")}
	for i := range s.own {
		add("another MAC", func(w []byte) []byte { return packet(other, s.own[i], s.peer[i], w) })
		add("another address", func(w []byte) []byte { return packet(s.mac, foreign[i], s.peer[i], w) })
		add("the gateway's address", func(w []byte) []byte { return packet(s.mac, s.gateway[i], s.peer[i], w) })
		add("a tag", func(w []byte) []byte { return tagged(packet(s.mac, s.own[i], s.peer[i], w), typeVLAN, 7) })
		add("another address behind a tag", func(w []byte) []byte {
			return tagged(packet(s.mac, foreign[i], s.peer[i], w), typeVLAN, 0)
		})
		add("two tags", func(w []byte) []byte {
			return tagged(tagged(packet(s.mac, s.own[i], s.peer[i], w), typeVLAN, 7), typeQinQ, 8)
		})
	}
	for _, fragment := range []uint16{0x2000, 1} { // the first fragment; the second
		add("a fragment of another address", func(w []byte) []byte {
			return ether(s.to, s.mac, typeIPv4,
				ip(foreign[0], s.peer[0], protoUDP, slices.Concat(w, make([]byte, 16-len(w)%8)), fragment))
		})
	}
	add("ARP for the gateway", func(w []byte) []byte {
		return slices.Concat(ether(every, s.mac, typeARP, arp(s.mac, s.gateway[0], every, s.peer[0])), w)
	})
	add("ARP for the gateway, to one", func(w []byte) []byte {
		return slices.Concat(ether(s.victim, s.mac, typeARP, arp(s.mac, s.gateway[0], s.victim, s.peer[0])), w)
	})
	add("ARP with another MAC in it", func(w []byte) []byte {
		return slices.Concat(ether(every, s.mac, typeARP, arp(other, s.own[0], every, s.own[0])), w)
	})
	add("the gateway's advertisement", func(w []byte) []byte {
		m := icmp6(s.own[1], nodes, 136, slices.Concat(neighbor(s.gateway[1], s.mac), w))
		return ether(routers, s.mac, typeIPv6, ip(s.own[1], nodes, protoICMPv6, m))
	})
	add("a solicitation from the gateway", func(w []byte) []byte {
		m := icmp6(s.gateway[1], nodes, 135, slices.Concat([]byte{0, 0, 0, 0}, s.peer[1].AsSlice(), []byte{1, 1}, s.mac, w))
		return ether(routers, s.mac, typeIPv6, ip(s.gateway[1], nodes, protoICMPv6, m))
	})
	add(
		"duplicate address detection of another's address",
		func(w []byte) []byte { // a host in duplicate address detection must give its address up
			m := icmp6(netip.IPv6Unspecified(), nodes, 135, slices.Concat([]byte{0, 0, 0, 0}, s.peer[1].AsSlice(), w))
			return ether(routers, s.mac, typeIPv6, ip(netip.IPv6Unspecified(), nodes, protoICMPv6, m))
		},
	)
	add("a DHCP server", func(w []byte) []byte {
		all := netip.MustParseAddr("255.255.255.255")
		return ether(every, s.mac, typeIPv4,
			ip(s.own[0], all, protoUDP, udp(netip.AddrPortFrom(s.own[0], 67), netip.AddrPortFrom(all, 68), w)))
	})
	add("a DHCP server, to one", func(w []byte) []byte { return packet(s.mac, s.own[0], s.peer[0], w, 67, 68) })
	add("a DHCPv6 server", func(w []byte) []byte { return packet(s.mac, s.own[1], s.peer[1], w, 547, 546) })
	add("a router", func(w []byte) []byte {
		m := icmp6(s.local, nodes, 134, slices.Concat(router(s.mac), w))
		return ether(routers, s.mac, typeIPv6, ip(s.local, nodes, protoICMPv6, m))
	})
	add("a router behind options", func(w []byte) []byte {
		m := icmp6(s.local, nodes, 134, slices.Concat(router(s.mac), w))
		return ether(routers, s.mac, typeIPv6,
			ip(s.local, nodes, protoDest, slices.Concat([]byte{protoICMPv6, 0, 1, 4, 0, 0, 0, 0}, m)))
	})
	add("a router in fragments", func(w []byte) []byte {
		m := icmp6(s.local, nodes, 134, slices.Concat(router(s.mac), w))
		return ether(routers, s.mac, typeIPv6,
			ip(s.local, nodes, protoFragment, slices.Concat([]byte{protoICMPv6, 0, 0, 8, 0, 0, 0, 7}, m)))
	})
	add("a redirect", func(w []byte) []byte {
		m := icmp6(s.local, s.peer[1], 137, slices.Concat(make([]byte, 36), w))
		return ether(s.to, s.mac, typeIPv6, ip(s.local, s.peer[1], protoICMPv6, m))
	})
	add("a spanning tree", func(w []byte) []byte {
		return ether([]byte{1, 0x80, 0xc2, 0, 0, 0}, s.mac, 60, slices.Concat([]byte{0x42, 0x42, 3}, make([]byte, 35), w))
	})
	add("another protocol", func(w []byte) []byte {
		return ether(s.to, s.mac, 0x88cc, slices.Concat(w, make([]byte, 46)))
	})
	return out
}

// TestHostile: packets with spoofed addresses, router advertisements and DHCP replies of a guest are dropped; honest
// ones are delivered. Without the source guards, for a trusted guest, all of them are delivered.
func TestHostile(t *testing.T) {
	for name, by := range sites() {
		t.Run(name, func(t *testing.T) {
			by.needs(t, false)
			w := newWorld(t, by, subnet4, subnet6)
			peer := w.pod(false, false)
			for _, binding := range by.bindings {
				t.Run(string(binding), func(t *testing.T) {
					inner := *w
					inner.t = t
					got := inner.attacked(peer, binding, false)
					if name != "flannel" && binding == model.VMDirect {
						// any routed pod may send this: a client that sent no request does not listen
						got = slices.DeleteFunc(got, func(s string) bool {
							return s == "a DHCP server, to one" || s == "a DHCPv6 server"
						})
					}
					if len(got) > 0 {
						t.Errorf("received from the guest: %s", strings.Join(got, "; "))
					}
					w.n = inner.n
				})
			}
			if name != "flannel" {
				return
			}
			t.Run("trusted", func(t *testing.T) {
				inner := *w
				inner.t = t
				// the bridge port of the node has a guard, too
				inner.conf = strings.Replace(inner.conf, `"type":"bridge"`, `"type":"bridge","guard":false`, 1)
				if got := inner.attacked(peer, model.VMBridge, true); len(got) < 20 {
					t.Errorf("received from the guest only: %s", strings.Join(got, "; "))
				}
				w.n = inner.n
			})
		})
	}
}

// attacked runs the attacks of a guest on a pod, and returns those that the pod received.
func (w *world) attacked(peer *pod, binding model.VMBinding, trust bool) []string {
	t := w.t
	p := w.pod(false, !trust)
	in := testInput(binding)
	in.TrustGuest = trust
	g := w.boot(p, in)[0]
	for i := range p.addrs { // resolves the neighbors of both sides
		ping(t, g.NS, peer.addrs[i].Addr())
	}
	s := w.stage(p, g, peer)
	return w.throw(s, g, peer, s.attacks())
}

// stage returns what a guest knows about a pod.
func (w *world) stage(p *pod, g guest, peer *pod) stage {
	t := w.t
	s := stage{mac: parseMAC(t, g.mac), victim: parseMAC(t, peer.mac), to: parseMAC(t, peer.mac)}
	for i, a := range g.addrs {
		s.own[i], s.peer[i] = a, peer.addrs[i].Addr()
		s.gateway[i] = p.addrs[i].Masked().Addr().Next()
	}
	switch {
	case g.addrs[0] != p.addrs[0].Addr(): // translated
		s.to = []byte{2, 0, 0, 0, 0, 0}
	case strings.Contains(w.conf, "calico"):
		s.to = []byte{0xee, 0xee, 0xee, 0xee, 0xee, 0xee}
		s.gateway = [2]netip.Addr{netip.MustParseAddr("169.254.1.1"), netip.MustParseAddr(routerOf(t, p.addrs[1].Addr()))}
	}
	s.local = linkLocal(t, g)
	return s
}

// throw sends frames from the guest, and returns those that its peer received before an honest one, which is sent last.
func (w *world) throw(s stage, g guest, peer *pod, attacks []attack) []string {
	t := w.t
	victim, attacker := openRaw(t, peer.ns, "eth0"), openRaw(t, g.NS, "eth0")
	markers := []string{}
	for i, a := range attacks {
		attacker.send(a.frame)
		markers = append(markers, fmt.Sprintf(evil, i))
	}
	honest := func() {
		from, to := netip.AddrPortFrom(s.own[0], 4001), netip.AddrPortFrom(s.peer[0], 4001)
		attacker.send(ether(s.to, s.mac, typeIPv4, ip(from.Addr(), to.Addr(), protoUDP, udp(from, to, []byte(fence)))))
	}
	honest()
	received := victim.received(fence, honest, markers...)
	var out []string
	for i, a := range attacks {
		if received[markers[i]] {
			out = append(out, a.name)
		}
	}
	return out
}

func linkLocal(t *testing.T, g guest) netip.Addr {
	t.Helper()
	for _, word := range strings.Fields(
		nettest.Run(t, g.NS, "ip", "-6", "-o", "addr", "show", "dev", "eth0", "scope", "link"),
	) {
		if p, err := netip.ParsePrefix(word); err == nil {
			return p.Addr()
		}
	}
	t.Fatal("the guest has no link-local address")
	return netip.Addr{}
}
