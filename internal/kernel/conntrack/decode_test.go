// SPDX-License-Identifier: Apache-2.0

package conntrack

import (
	"encoding/hex"
	"net/netip"
	"testing"

	"github.com/weft-net/weft/internal/state"
)

// recordedNew is the beginning of a connection of UDP, whose destination is translated, as a little-endian kernel sends it.
const recordedNew = "c0000000000100060000000000000000020000f0" + // NLM_F_CREATE|NLM_F_EXCL
	"3400018014000180080001007f00000108000200" + "7f0000091c000280050001001100000006000200" + "271000000600030000350000" +
	"3400028014000180080001007f00000208000200" + "7f0000011c000280050001001100000006000200" + "14e900000600030027100000"

func TestDecodeAllocatesNothing(t *testing.T) {
	message, err := hex.DecodeString(recordedNew)
	if err != nil {
		t.Fatal(err)
	}
	message[0] = byte(len(message))
	events := decode(message, nil)
	want := state.Connection{
		Proto: 17, Src: netip.MustParseAddrPort("127.0.0.1:10000"), Dst: netip.MustParseAddrPort("127.0.0.9:53"),
		ReplySrc: netip.MustParseAddrPort("127.0.0.2:5353"), ReplyDst: netip.MustParseAddrPort("127.0.0.1:10000"),
	}
	if len(events) != 1 || events[0].Kind != New || events[0].Connection != want {
		t.Fatalf("%+v, want %+v", events, want)
	}
	if n := testing.AllocsPerRun(100, func() { events = decode(message, events[:0]) }); n != 0 {
		t.Errorf("%v allocations for an event", n)
	}
}

// A message that the buffer had no room for is counted as lost.
func TestDecodeCut(t *testing.T) {
	message, err := hex.DecodeString(recordedNew)
	if err != nil {
		t.Fatal(err)
	}
	message[0] = byte(len(message))
	var s socket
	if events := s.take(message[:60], false, nil); len(events) != 0 || s.cut.Load() != 1 {
		t.Errorf("%+v, lost %d", events, s.cut.Load())
	}
}

// FuzzDecode: no message of the kernel, however broken, is more than not understood.
func FuzzDecode(f *testing.F) {
	message, err := hex.DecodeString(recordedNew)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(message)
	f.Add(message[:50])
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, e := range decode(b, nil) {
			if !e.Src.Addr().IsValid() || e.Kind == Update && e.State == "" {
				t.Errorf("%+v", e)
			}
		}
	})
}

func BenchmarkDecode(b *testing.B) {
	message, err := hex.DecodeString(recordedNew)
	if err != nil {
		b.Fatal(err)
	}
	message[0] = byte(len(message))
	var events []Event
	b.ReportAllocs()
	for b.Loop() {
		events = decode(message, events[:0])
	}
}
