// SPDX-License-Identifier: Apache-2.0

package fastpath_test

import (
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/kernel"
	"github.com/weft-net/weft/internal/kernel/fastpath"
	"github.com/weft-net/weft/internal/nettest"
	"github.com/weft-net/weft/internal/nettest/forge"
	"github.com/weft-net/weft/internal/state"
)

// guestMAC is that of a guest with a tap on the node.
const guestMAC = "02:00:00:00:00:0b"

// behindTap makes the pod b a guest with a tap: on the node in place of the pod's link, or in the pod, joined to its link.
func (w *world) behindTap(t *testing.T, onNode bool) {
	t.Helper()
	nettest.Need(t, "tap")
	pod, tap, mac := w.node, "calib", guestMAC
	guest := nettest.NS(t, "guest")
	if onNode {
		ip(t, w.node, "link del calib", "tuntap add calib mode tap", "link set calib address ee:ee:ee:ee:ee:ee up")
	} else {
		pod, tap, mac = w.b, "tap0", nettest.MAC(t, w.b, "eth0").String()
		ip(t, pod, "tuntap add tap0 mode tap", "link set tap0 up")
	}
	nettest.Relay(t, pod, tap, false, guest, mac)
	if !onNode {
		c, err := kernel.Dial(pod)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close() }()
		if err := (kernel.Spaces{Host: c}).Apply(t.Context(), state.Fragment{
			Owner: "guest", Host: state.Space{Joins: []state.Join{{Tap: "tap0", Link: "eth0"}}},
		}); err != nil {
			t.Fatal(err)
		}
	}
	ip(t, guest, "link set lo up", "addr add "+addrB+"/32 dev eth0", "addr add "+sixB+"/128 dev eth0 nodad",
		"route add 169.254.1.1 dev eth0", "route add default via 169.254.1.1", "neigh add 169.254.1.1 lladdr ee:ee:ee:ee:ee:ee dev eth0",
		"route add fe80::1 dev eth0", "-6 route add default via fe80::1 dev eth0", "neigh add fe80::1 lladdr ee:ee:ee:ee:ee:ee dev eth0")
	if onNode {
		ip(t, w.node, "route add "+addrB+" dev calib", "-6 route add "+sixB+" dev calib",
			"neigh add "+addrB+" lladdr "+guestMAC+" dev calib", "neigh add "+sixB+" lladdr "+guestMAC+" dev calib")
		w.tap = true
	}
	w.b = guest
}

// Flows of a guest take the fast path to its tap and from it, wherever the tap is, with the same limits as those of pods.
func TestTap(t *testing.T) {
	for name, onNode := range map[string]bool{"on the node": true, "in the pod": false} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.behindTap(t, onNode)
			nettest.Run(t, w.b, "nft", `add table inet t; add chain inet t i { type filter hook input priority 0; };
				add rule inet t i meta l4proto udp ip ttl != 63 counter drop; add rule inet t i meta l4proto udp ip6 hoplimit != 63 counter drop`)
			w.start(t, long)
			w.guarded(t)
			for _, addr := range []string{addrB, sixB} {
				for _, network := range []string{"tcp", "udp"} { // UDP: each packet's lifetime is one less
					s := w.learn(t, network, w.a, w.b, addr)
					seen := forwarded(t, w.node)
					if s.must(50, 1000); forwarded(t, w.node)-seen > 10 {
						t.Errorf("%s to %s: the stack forwarded %d packets of 100", network, addr, forwarded(t, w.node)-seen)
					}
					if network == "tcp" { // also with segments that the tap does not take in one
						s.must(1, 300_000)
					}
				}
			}
			s := w.learn(t, "tcp", w.b, w.c, addrC)
			s.must(1, 300_000)
			w.fragmented(t)
		})
	}
}

// fragmented checks that packets of a guest which exceed the MTU of the route are answered.
func (w *world) fragmented(t *testing.T) {
	t.Helper()
	ip(t, w.node, "route change 10.0.1.0/24 via 172.16.0.2 mtu lock 1300")
	if err := w.path.Flush(); err != nil {
		t.Fatal(err)
	}
	serve(t, w.c, "tcp", addrC+":7001")
	s := dial(t, w.b, "tcp", addrC+":7001")
	s.must(5, 100)
	before := w.packets(t)
	s.must(20, 100)
	if s.must(1, 300_000); w.packets(t) == before {
		t.Error("nothing takes the fast path")
	}
}

// guarded checks that frames of a guest with another MAC or another pod's address take the slow path, where the guards are.
func (w *world) guarded(t *testing.T) {
	t.Helper()
	mac := nettest.MAC(t, w.b, "eth0")
	gateway := net.HardwareAddr{0xee, 0xee, 0xee, 0xee, 0xee, 0xee}
	nettest.Listen(t, w.a, 7009) // it does not answer
	s := dial(t, w.b, "udp", addrA+":7009")
	own, to := s.LocalAddr().(*net.UDPAddr).AddrPort(), s.RemoteAddr().(*net.UDPAddr).AddrPort()
	for _, c := range []struct {
		name string
		mac  net.HardwareAddr
		from netip.AddrPort
		fast bool
	}{
		{"its own", mac, own, true},
		{"another MAC", net.HardwareAddr{2, 0, 0, 0, 0, 9}, own, false},
		{"another address", mac, netip.AddrPortFrom(netip.MustParseAddr(addrC), own.Port()), false},
	} {
		frame := forge.Ether(gateway, c.mac, forge.KindOf(own.Addr()),
			forge.IP(c.from.Addr(), to.Addr(), forge.ProtoUDP, forge.UDP(c.from, to, []byte("x"))))
		fast, slow := w.packets(t), forwarded(t, w.node)
		took := func() (int, int) { return int(w.packets(t) - fast), forwarded(t, w.node) - slow }
		for range 20 {
			nettest.SendFrame(t, w.b, "eth0", frame)
		}
		for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
			if a, b := took(); a+b >= 20 {
				break
			}
		}
		if a, b := took(); a+b < 20 || c.fast && a < 15 || !c.fast && a > 0 {
			t.Errorf("%s: of 20 packets %d took the fast path, and %d the slow one", c.name, a, b)
		}
	}
}

// A queueing discipline of a tap sees the packets of the fast path: a limit of bandwidth applies.
func TestTapQueue(t *testing.T) {
	w := newWorld(t)
	w.behindTap(t, true)
	limited(t, w.node, "calib")
	w.start(t, long)
	s := w.learn(t, "udp", w.a, w.b, addrB)
	before, fast := queued(t, w.node, "calib"), w.packets(t)
	s.must(20, 100)
	if n := queued(t, w.node, "calib") - before; n < 20 || w.packets(t)-fast < 30 {
		t.Errorf("the queueing discipline saw %d packets, %d took the fast path", n, w.packets(t)-fast)
	}
}

// tapOf returns how packets are redirected to the link of b.
func (w *world) tapOf() fastpath.How {
	if w.tap {
		return fastpath.ToTap
	}
	return fastpath.ToPeer
}
