// SPDX-License-Identifier: Apache-2.0

package matrix

import (
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/nettest"
	"github.com/weft-net/weft/internal/nettest/forge"
)

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
	return w.throw(s, g, peer, s.Attacks())
}

// stage returns what a guest knows about a pod.
func (w *world) stage(p *pod, g guest, peer *pod) forge.Stage {
	t := w.t
	s := forge.Stage{MAC: parseMAC(t, g.mac), Victim: parseMAC(t, peer.mac), To: parseMAC(t, peer.mac)}
	for i, a := range g.addrs {
		s.Own[i], s.Peer[i] = a, peer.addrs[i].Addr()
		s.Gateway[i] = p.addrs[i].Masked().Addr().Next()
	}
	switch {
	case g.addrs[0] != p.addrs[0].Addr(): // translated
		s.To = []byte{2, 0, 0, 0, 0, 0}
	case strings.Contains(w.conf, "calico"):
		s.To = []byte{0xee, 0xee, 0xee, 0xee, 0xee, 0xee}
		s.Gateway = [2]netip.Addr{netip.MustParseAddr("169.254.1.1"), netip.MustParseAddr(routerOf(t, p.addrs[1].Addr()))}
	}
	s.Local = linkLocal(t, g)
	return s
}

// throw sends frames from the guest, and returns those that its peer received before an honest one, which is sent last.
func (w *world) throw(s forge.Stage, g guest, peer *pod, attacks []forge.Attack) []string {
	t := w.t
	victim, attacker := openRaw(t, peer.ns, "eth0"), openRaw(t, g.NS, "eth0")
	markers := []string{}
	for _, a := range attacks {
		attacker.send(a.Frame)
		markers = append(markers, string(a.Word))
	}
	honest := func() { attacker.send(s.Honest(0)) }
	honest()
	received := victim.received(forge.Fence, honest, markers...)
	var out []string
	for i, a := range attacks {
		if received[markers[i]] {
			out = append(out, a.Name)
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

// parseMAC parses a MAC address.
func parseMAC(t testing.TB, s string) []byte {
	t.Helper()
	m, err := net.ParseMAC(s)
	if err != nil {
		t.Fatal(err)
	}
	return m
}
