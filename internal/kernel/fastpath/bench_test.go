// SPDX-License-Identifier: Apache-2.0

package fastpath_test

import (
	"net"
	"runtime"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/nettest"
)

// BenchmarkPacket measures the processor time that a datagram of 18 bytes takes from its sender to the other namespace,
// without the fast path and with it, in turns: ns per packet, and the median of the rounds' ratios. The sender's thread does
// all the work, and other programs' share of the processor does not count. Rules are those of a node with a source guard
// and policies.
//
//	go test ./internal/kernel/fastpath -run ^$ -bench Packet -benchtime 25x
func BenchmarkPacket(b *testing.B) {
	w := newWorld(b)
	w.start(b, 20*time.Second)
	benchmarkPackets(b, w, 20000, func(b *testing.B, _ *stream, on bool) {
		if err := w.path.Enable(on, 20*time.Second, 20*time.Second); err != nil {
			b.Fatal(err)
		}
	})
}

// BenchmarkFlowtable is the same with the flowtable of nftables. In the test VM, whose clock counts instructions then, a
// nanosecond is an instruction:
//
//	BENCH=Flowtable ICOUNT=1 PKGS=internal/kernel/fastpath make test-vm
func BenchmarkFlowtable(b *testing.B) {
	w := newWorld(b)
	f := flowsOf(b, w)
	benchmarkPackets(b, w, 2000, func(b *testing.B, s *stream, on bool) {
		if err := f.table.Enable(on, 0, 0); err != nil {
			b.Fatal(err)
		}
		for end := time.Now().Add(time.Minute); ; { // a flow enters after packets of both directions
			if s.must(2, 18); (f.offloaded(b) > 0) == on {
				return
			}
			if time.Now().After(end) {
				b.Fatalf("%d flows are in the flowtable\n%s", f.offloaded(b), tracked(b, f.node))
			}
		}
	})
}

// benchmarkPackets measures packets without a fast path and with it; enable switches it.
func benchmarkPackets(b *testing.B, w *world, packets int, enable func(b *testing.B, s *stream, on bool)) {
	b.Helper()
	addRules(b, w)
	for _, c := range []struct {
		name     string
		from, to *netns.NS
		addr     string
	}{{"same node", w.a, w.b, addrB}, {"to a node", w.a, w.router, "172.16.0.2"}, {"from a node", w.router, w.a, addrA}} {
		b.Run(c.name, func(b *testing.B) {
			serve(b, c.to, "udp", c.addr+":9999")
			s := dial(b, c.from, "udp", c.addr+":9999")
			raw, err := s.Conn.(*net.UDPConn).SyscallConn()
			if err != nil {
				b.Fatal(err)
			}
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			var slow, fast, ratios []float64
			for b.Loop() {
				var took [2]float64
				for i := range took {
					enable(b, s, i == 1)
					nettest.Run(b, c.to, "nft", "add table inet sink; add chain inet sink p { type filter hook prerouting priority -400; };"+
						"add rule inet sink p udp dport 9999 drop")
					if err := raw.Control(func(fd uintptr) { took[i] = perPacket(int(fd), packets) }); err != nil {
						b.Fatal(err)
					}
					nettest.Run(b, c.to, "nft", "delete table inet sink")
				}
				slow, fast, ratios = append(slow, took[0]), append(fast, took[1]), append(ratios, took[0]/took[1])
			}
			median := func(all []float64) float64 { slices.Sort(all); return all[len(all)/2] }
			b.ReportMetric(median(slow), "slow-ns")
			b.ReportMetric(median(fast), "fast-ns")
			b.ReportMetric(median(ratios), "slow/fast")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// addRules adds the rules of a node with a source guard and policies.
func addRules(b *testing.B, w *world) {
	b.Helper()
	nettest.Run(b, w.node, "nft", `add table inet guard; add set inet guard links { type ifname; };
		add element inet guard links { "calia", "calib" }; add set inet guard own { type ifname . ether_addr . ipv4_addr; };
		add chain inet guard p { type filter hook prerouting priority -300; };
		add rule inet guard p iifname != @links accept; add rule inet guard p ip daddr 127.0.0.0/8 drop;
		add rule inet guard p meta l4proto icmp accept; add rule inet guard p iifname . ether saddr . ip saddr @own accept;
		add table inet np; add map inet np mout { type ifname : verdict; }; add map inet np min { type ifname : verdict; };
		add chain inet np e { type filter hook forward priority -5; }; add chain inet np i { type filter hook forward priority -4; };
		add rule inet np e ct state established accept; add rule inet np e iifname vmap @mout;
		add rule inet np i ct state established accept; add rule inet np i oifname vmap @min`)
}

// perPacket sends packets and returns the thread's processor time for each, in nanoseconds.
func perPacket(fd, packets int) float64 {
	began, data := threadTime(), make([]byte, 18)
	for range packets {
		_, _ = unix.Write(fd, data)
	}
	return float64(threadTime()-began) / float64(packets)
}

func threadTime() int64 {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t)
	return t.Nano()
}
