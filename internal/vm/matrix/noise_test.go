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
)

// noises is how many frames a guest makes up.
const noises = 400

// TestNoise: whatever a guest sends, what others hear of it bears its own addresses, and the machine's network lives
// on.
func TestNoise(t *testing.T) {
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
					g := inner.boot(p, machine(binding))[0]
					for i := range p.addrs {
						ping(t, g.NS, peer.addrs[i].Addr())
					}
					inner.noise(p, g, peer, rand.New(rand.NewPCG(7, uint64(i))))
					for i := range p.addrs {
						ping(t, g.NS, peer.addrs[i].Addr())
					}
					w.n = inner.n
				})
			}
		})
	}
}

// noise has a guest send what it was taught, spoilt, and judges what its peer hears.
func (w *world) noise(p *pod, g guest, peer *pod, r *rand.Rand) {
	t := w.t
	s := w.stage(p, g, peer)
	var taught [][]byte
	for _, a := range s.attacks() {
		taught = append(taught, a.frame)
	}
	every := []byte{255, 255, 255, 255, 255, 255}
	taught = append(taught, ether(every, s.mac, typeARP, arp(s.mac, s.own[0], every, s.own[0])))
	for i := range s.own {
		src, dst := netip.AddrPortFrom(s.own[i], 4000), netip.AddrPortFrom(s.peer[i], 4000)
		frame := ether(s.to, s.mac, kindOf(s.own[i]), ip(s.own[i], s.peer[i], protoUDP, udp(src, dst, []byte("honest"))))
		taught = append(taught, slices.Repeat([][]byte{frame}, 10)...)
	}
	attacker := openRaw(t, g.NS, "eth0")
	ear := openRaw(t, peer.ns, "eth0")
	for range noises {
		attacker.send(spoilt(slices.Clone(taught[r.IntN(len(taught))]), r))
	}
	honest := func() {
		from, to := netip.AddrPortFrom(s.own[0], 4001), netip.AddrPortFrom(s.peer[0], 4001)
		attacker.send(ether(s.to, s.mac, typeIPv4, ip(from.Addr(), to.Addr(), protoUDP, udp(from, to, []byte(fence)))))
	}
	honest()
	macs, count := w.known(peer), 0
	ear.each(fence, honest, func(frame []byte) {
		if !macs[string(frame[6:12])] {
			count++
			if why := lie(frame, p); why != "" {
				t.Errorf("heard %s: %x", why, frame)
			}
		}
	})
	// What is spoilt is not tracked, and what is not tracked is not translated: it goes nowhere.
	if translated := g.addrs[0] != p.addrs[0].Addr(); count < 3 && !translated {
		t.Errorf("only %d frames of the guest were heard", count)
	}
}

// spoilt changes some bytes of a frame's heads, or its length.
func spoilt(frame []byte, r *rand.Rand) []byte {
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

// known are the hardware addresses of others that the peer hears: its bridge's, its node's.
func (w *world) known(peer *pod) map[string]bool {
	out := map[string]bool{string(hw(w.t, peer.mac)): true}
	for line := range strings.Lines(nettest.Run(w.t, nil, "ip", "-br", "link")) {
		if f := strings.Fields(line); len(f) > 2 && f[0] == "cni0" {
			out[string(hw(w.t, f[2]))] = true
		}
	}
	return out
}

// lie tells what of a frame is not so: it is the pod's, or its node's that has routed it, and says so.
func lie(frame []byte, p *pod) string {
	node := netip.MustParseAddr("192.168.7.2") // speaks of packets that it could not deliver
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
	if routed && binary.BigEndian.Uint16(frame[12:]) == typeARP {
		return "" // the node's own
	}
	switch kind := binary.BigEndian.Uint16(frame[12:]); {
	case kind == typeIPv4 && len(body) >= 20:
		if a, _ := netip.AddrFromSlice(body[12:16]); !own(a) {
			return "another address"
		}
	case kind == typeIPv6 && len(body) >= 40:
		if a, _ := netip.AddrFromSlice(body[8:24]); !own(a) {
			return "another address"
		}
	case kind == typeARP && len(body) >= 28:
		if a, _ := netip.AddrFromSlice(body[14:18]); !own(a) || string(body[8:14]) != string(src) {
			return "ARP for another address"
		}
	case kind == unix.ETH_P_RARP:
	default:
		return "another protocol"
	}
	return ""
}
