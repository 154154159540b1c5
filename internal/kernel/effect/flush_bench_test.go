// SPDX-License-Identifier: Apache-2.0

package effect

import (
	"fmt"
	"net"
	"net/netip"
	"testing"

	"github.com/weft-net/weft/internal/nettest"
	"github.com/weft-net/weft/internal/state"
)

// BenchmarkCut measures walking a table of so many entries, of which none, or one, is selected.
func BenchmarkCut(b *testing.B) {
	ns := nettest.NS(b, "many")
	nettest.Run(b, ns, "ip", "link", "set", "lo", "up")
	for _, words := range []string{
		"add table ip tracks", "add chain ip tracks everything { type filter hook output priority 0 ; }",
		"add rule ip tracks everything ct state new counter",
	} {
		nettest.Run(b, ns, "nft", words)
	}
	made := 0
	for _, n := range []int{1_000, 10_000, 100_000} {
		if err := ns.Do(func() error {
			c, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
			if err != nil {
				return err
			}
			defer func() { _ = c.Close() }()
			for ; made < n; made++ { // unanswered connections are tracked as well; each address has its own
				to := netip.AddrFrom4([4]byte{127, 1, byte(made >> 12 & 0xff), 1})
				_, _ = c.WriteToUDPAddrPort([]byte("x"), netip.AddrPortFrom(to, uint16(1024+made&0xfff)))
			}
			return nil
		}); err != nil {
			b.Fatal(err)
		}
		var k Conntrack
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			seen := 0
			for b.Loop() {
				seen = 0
				if _, err := k.Flush(ns, func(state.Connection) bool { seen++; return false }); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(seen), "connections")
		})
		for _, parties := range []int{1, 8} {
			var of []state.ConntrackPeer
			for i := range parties {
				of = append(of, state.ConntrackPeer{Addr: netip.AddrFrom4([4]byte{127, 1, byte(i), 1}), Responds: true})
			}
			b.Run(fmt.Sprintf("%d of %d parties", n, parties), func(b *testing.B) {
				seen := 0
				for b.Loop() {
					found, err := k.Find(ns, of, func(state.Connection) bool { return true })
					if err != nil {
						b.Fatal(err)
					}
					seen = len(found)
				}
				b.ReportMetric(float64(seen), "connections")
			})
		}
		if err := k.Close(); err != nil {
			b.Error(err)
		}
	}
}
