// SPDX-License-Identifier: Apache-2.0

package fastpath

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cilium/ebpf"
)

// BenchmarkProgram measures the time that a program takes for a packet, without the kernel around it (BPF_PROG_TEST_RUN): of a
// learned flow to a pod and to another node, and of flows that are not learned. It is the least of many short runs, so that
// other programs' share of the processor does not count.
//
//	go test ./internal/kernel/fastpath -run ^$ -bench Program -benchtime 500x
func BenchmarkProgram(b *testing.B) {
	for _, c := range []struct {
		name    string
		addrs   [2]string
		how     How
		learned bool
	}{
		{"IPv4 to a pod", [2]string{"10.0.0.1", "10.0.0.2"}, ToPeer, true},
		{"IPv4 to a node", [2]string{"10.0.0.1", "10.0.0.2"}, ToNeighbor, true},
		{"IPv6 to a pod", [2]string{"fd00::1", "fd00::2"}, ToPeer, true},
		{"not learned", [2]string{"10.0.0.1", "10.0.0.2"}, ToPeer, false},
	} {
		b.Run(c.name, func(b *testing.B) {
			p, err := Load(nil)
			if err != nil {
				b.Skip("no fast path: " + err.Error())
			}
			defer func() { _ = p.Close() }()
			if err := p.Enable(true, time.Hour, time.Hour); err != nil {
				b.Fatal(err)
			}
			from, to := netip.MustParseAddr(c.addrs[0]), netip.MustParseAddr(c.addrs[1])
			want := uint32(0xffffffff) // TCX_NEXT
			if c.learned {
				if err := p.flows.Update(flowKey(from, to), learnedFlow(p.current.Generation, c.how, from.Is4()), ebpf.UpdateAny); err != nil {
					b.Fatal(err)
				}
				want = 7 // TC_ACT_REDIRECT
			}
			const repeat = 200 // a packet's lifetime is 255
			var took []time.Duration
			for b.Loop() {
				got, each, err := p.in.Benchmark(datagram(from, to), repeat, nil)
				if err != nil || got != want {
					b.Fatalf("verdict %d, want %d: %v", int32(got), int32(want), err)
				}
				took = append(took, each)
			}
			b.ReportMetric(float64(slices.Min(took)), "ns/packet")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// flowKey is the C structure key of datagram.
func flowKey(from, to netip.Addr) []byte {
	const loopback = 1
	k := binary.NativeEndian.AppendUint32(nil, loopback)
	family := byte(unix.AF_INET)
	if from.Is6() {
		family = unix.AF_INET6
	}
	k = append(k, family, unix.IPPROTO_UDP, 0, 0, 0x1b, 0x58, 0x1b, 0x59)
	for _, a := range []netip.Addr{from, to} {
		b := a.As16()
		if a.Is4() {
			b = netip.AddrFrom16(b).As16()
		}
		k = append(k, b[:]...)
	}
	return k
}

// learnedFlow is the C structure flow of datagram.
func learnedFlow(generation uint32, how How, four bool) []byte {
	const learned, loopback = 2, 1
	f := make([]byte, flowSize)
	var now unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &now)
	binary.NativeEndian.PutUint64(f[8:], uint64(now.Nano()))
	for i, v := range []uint32{generation, loopback, 1500} {
		binary.NativeEndian.PutUint32(f[16+4*i:], v)
	}
	f[36], f[37] = learned, byte(how)
	f[64] = unix.AF_INET6
	if four {
		f[64] = unix.AF_INET
	}
	return f
}

// datagram is a frame without MAC addresses: the loopback interface, at which it arrives, has none.
func datagram(from, to netip.Addr) []byte {
	frame := make([]byte, 12, 128)
	if from.Is4() {
		frame = append(frame, 8, 0, 0x45, 0, 0, 46, 0, 0, 0, 0, 255, unix.IPPROTO_UDP, 0, 0)
	} else {
		frame = append(frame, 0x86, 0xdd, 0x60, 0, 0, 0, 0, 26, unix.IPPROTO_UDP, 255)
	}
	frame = append(append(frame, from.AsSlice()...), to.AsSlice()...)
	frame = append(frame, 0x1b, 0x58, 0x1b, 0x59, 0, 26, 0, 0)
	return append(frame, make([]byte, 18)...)
}
