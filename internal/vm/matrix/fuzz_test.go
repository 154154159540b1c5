// SPDX-License-Identifier: Apache-2.0

package matrix

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/nettest"
	"github.com/weft-net/weft/internal/nettest/forge"
)

// fuzzFrames is the number of random frames of a guest.
const fuzzFrames = 400

// TestFuzz: of random frames of a guest, only those with its own addresses are delivered, and its network keeps
// working.
func TestFuzz(t *testing.T) {
	for name, by := range sites() {
		t.Run(name, func(t *testing.T) {
			by.needs(t, false)
			w := newWorld(t, by, subnet4, subnet6)
			peer := w.pod(false, false)
			for i, binding := range by.bindings {
				t.Run(string(binding), func(t *testing.T) {
					inner := *w
					inner.t = t
					p := inner.pod(false, true)
					g := inner.boot(p, testInput(binding))[0]
					for i := range p.addrs {
						ping(t, g.NS, peer.addrs[i].Addr())
					}
					inner.fuzz(p, g, peer, rand.New(rand.NewPCG(7, uint64(i))))
					for i := range p.addrs {
						ping(t, g.NS, peer.addrs[i].Addr())
					}
					w.n = inner.n
				})
			}
		})
	}
}

// fuzz sends mutations of known frames from a guest, and checks what its peer receives.
func (w *world) fuzz(p *pod, g guest, peer *pod, r *rand.Rand) {
	t := w.t
	s := w.stage(p, g, peer)
	var known [][]byte
	for _, a := range s.Attacks() {
		known = append(known, a.Frame)
	}
	every := []byte{255, 255, 255, 255, 255, 255}
	known = append(known, forge.Ether(every, s.MAC, forge.TypeARP, forge.ARP(s.MAC, s.Own[0], every, s.Own[0])))
	for i := range s.Own {
		src, dst := netip.AddrPortFrom(s.Own[i], 4000), netip.AddrPortFrom(s.Peer[i], 4000)
		frame := forge.Ether(s.To, s.MAC, forge.KindOf(s.Own[i]), forge.IP(s.Own[i], s.Peer[i], forge.ProtoUDP, forge.UDP(src, dst, []byte("honest"))))
		known = append(known, slices.Repeat([][]byte{frame}, 10)...)
	}
	attacker := openRaw(t, g.NS, "eth0")
	victim := openRaw(t, peer.ns, "eth0")
	for range fuzzFrames {
		attacker.send(mutate(slices.Clone(known[r.IntN(len(known))]), r))
	}
	honest := func() { attacker.send(s.Honest(0)) }
	honest()
	macs, count := w.known(peer), 0
	victim.each(forge.Fence, honest, func(frame []byte) {
		if !macs[string(frame[6:12])] {
			count++
			if why := spoofed(frame, p); why != "" && (!w.links()[string(frame[6:12])] || !isListenerReport(frame)) {
				t.Errorf("received %s: %x", why, frame)
			}
		}
	})
	// Invalid packets are not tracked and therefore not translated: with masquerade they are dropped.
	if translated := g.addrs[0] != p.addrs[0].Addr(); count < 3 && !translated {
		t.Errorf("only %d frames of the guest were received", count)
	}
}

// mutate changes some bytes of a frame's headers, or its length.
func mutate(frame []byte, r *rand.Rand) []byte {
	for range 1 + r.IntN(3) {
		i := r.IntN(min(len(frame), 60))
		switch r.IntN(3) {
		case 0:
			frame[i] ^= 1 << r.IntN(8)
		case 1:
			frame[i] = byte(r.Uint32())
		default:
			copy(frame[i:], frame[r.IntN(len(frame)):])
		}
	}
	switch r.IntN(8) {
	case 0:
		frame = frame[:14+r.IntN(len(frame)-13)]
	case 1:
		frame = append(frame, make([]byte, r.IntN(200))...)
	}
	return frame
}

// known returns the MAC addresses of other senders that the peer receives from: its bridge and its node.
func (w *world) known(peer *pod) map[string]bool {
	out := map[string]bool{string(parseMAC(w.t, peer.mac)): true}
	for line := range strings.Lines(nettest.Run(w.t, nil, "ip", "-br", "link")) {
		if f := strings.Fields(line); len(f) > 2 && f[0] == "cni0" {
			out[string(parseMAC(w.t, f[2]))] = true
		}
	}
	return out
}

// links returns the MAC addresses of the node's links.
func (w *world) links() map[string]bool {
	out := map[string]bool{}
	for line := range strings.Lines(nettest.Run(w.t, nil, "ip", "-br", "link")) {
		if f := strings.Fields(line); len(f) > 2 && strings.Count(f[2], ":") == 5 {
			out[string(parseMAC(w.t, f[2]))] = true
		}
	}
	return out
}

// isListenerReport reports whether a frame is a multicast listener report (RFC 3810), which the node's kernel sends for
// its own links when they get an address: behind a macvtap's parent its peer receives them.
func isListenerReport(frame []byte) bool {
	const hopByHop, icmp, report = 14 + 6, 14 + 40 + 8, 143
	return len(frame) > icmp && frame[12] == 0x86 && frame[13] == 0xdd && frame[hopByHop] == 0 && frame[icmp] == report
}

// spoofed returns what is spoofed in a frame from the pod, or from the node that routed it.
func spoofed(frame []byte, p *pod) string {
	node := netip.MustParseAddr("192.168.7.2") // sends ICMP errors
	own := func(a netip.Addr) bool {
		return a == node || a.IsUnspecified() || a.Is6() && a.IsLinkLocalUnicast() ||
			slices.ContainsFunc(p.addrs, func(o netip.Prefix) bool { return o.Addr() == a })
	}
	src := frame[6:12]
	routed := string(src) == string([]byte{0xee, 0xee, 0xee, 0xee, 0xee, 0xee})
	if !routed && fmt.Sprintf("%02x:%02x:%02x:%02x:%02x:%02x", src[0], src[1], src[2], src[3], src[4], src[5]) != p.mac {
		return "another MAC"
	}
	body := frame[14:]
	if routed && binary.BigEndian.Uint16(frame[12:]) == forge.TypeARP {
		return "" // from the node
	}
	switch kind := binary.BigEndian.Uint16(frame[12:]); {
	case kind == forge.TypeIPv4 && len(body) >= 20:
		if a, _ := netip.AddrFromSlice(body[12:16]); !own(a) {
			return "another address"
		}
	case kind == forge.TypeIPv6 && len(body) >= 40:
		if a, _ := netip.AddrFromSlice(body[8:24]); !own(a) {
			return "another address"
		}
	case kind == forge.TypeARP && len(body) >= 28:
		if a, _ := netip.AddrFromSlice(body[14:18]); !own(a) || string(body[8:14]) != string(src) {
			return "ARP for another address"
		}
	case kind == unix.ETH_P_RARP:
	default:
		return "another protocol"
	}
	return ""
}
