// SPDX-License-Identifier: Apache-2.0

package observer

import (
	"log/slog"
	"net/netip"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/flow"
	"github.com/weft-net/weft/internal/kernel/conntrack"
	"github.com/weft-net/weft/internal/state"
)

// BenchmarkEvent is what a new connection costs with the level flows, without the socket.
func BenchmarkEvent(b *testing.B) {
	o := New(Config{Level: flow.LevelFlows, Records: none{}, Log: slog.New(slog.DiscardHandler), Now: time.Now})
	o.running, o.names = true, newNames(o.cfg)
	src, dst := netip.MustParseAddr("10.42.1.2"), netip.MustParseAddrPort("10.42.1.3:80")
	b.ReportAllocs()
	for i := range b.N {
		from := netip.AddrPortFrom(src, uint16(i))
		o.receive([]conntrack.Event{{Kind: conntrack.New, Connection: state.Connection{
			Proto: 17, Src: from, Dst: dst, ReplySrc: dst, ReplyDst: from,
		}}})
	}
}
