// SPDX-License-Identifier: Apache-2.0

package tc

import (
	"testing"

	"github.com/weft-net/weft/internal/state"
)

// TestTicks converts bursts to durations at their rate. Tests with a kernel compare with the kernel's values.
func TestTicks(t *testing.T) {
	for _, tc := range []struct {
		rate  uint64
		burst uint32
		want  uint32
	}{
		{125_000, 20_000, 2_500_000}, // 160 ms
		{1_000_000, 20_000, 312_500},
		{1 << 33, 1<<32 - 2, 7_812_499},
		{0, 5, 0},
	} {
		got := ticks(tc.rate, tc.burst)
		if d := int32(got - tc.want); d < -1 || d > 1 {
			t.Errorf("%d bytes at %d a second: %d ticks, want %d", tc.burst, tc.rate, got, tc.want)
		}
		if back := bytesIn(tc.rate, got); tc.rate == 1_000_000 && back != tc.burst {
			t.Errorf("%d ticks at %d a second: %d bytes, want %d", got, tc.rate, back, tc.burst)
		}
	}
}

// TestOneTickOff: the reciprocal that the kernel computes with may be one tick off, and no more.
func TestOneTickOff(t *testing.T) {
	want := state.Qdisc{Link: "x", Kind: state.TBF, Rate: 125_000, Burst: 20_000, Limit: 23_125}
	for d := uint32(0); d < 4; d++ {
		f := Found{Qdisc: want, Handle: Handle, Ticks: ticks(want.Rate, want.Burst) + d}
		if f.Is(want) != (d <= 1) {
			t.Errorf("%d ticks off: %t", d, f.Is(want))
		}
	}
	for name, change := range map[string]func(*Found){
		"handle": func(f *Found) { f.Handle = 1 << 16 }, "kind": func(f *Found) { f.Kind = "fq" },
		"rate": func(f *Found) { f.Rate++ }, "limit": func(f *Found) { f.Limit-- },
	} {
		f := Found{Qdisc: want, Handle: Handle, Ticks: ticks(want.Rate, want.Burst)}
		change(&f)
		if f.Is(want) {
			t.Errorf("another %s is not seen", name)
		}
	}
}

// FuzzDecode decodes any input.
func FuzzDecode(f *testing.F) {
	f.Add(header(3, Handle, root, 1))
	f.Add(append(header(3, 0, ingressHandle, about()), 12, 0, 2, 0, 8, 0, 7, 0, 4, 0, 1, 0))
	f.Fuzz(func(t *testing.T, body []byte) {
		if q, ok := Decode(body); ok && q.Kind == "" {
			t.Error("a qdisc without a kind")
		}
		if f, ours, ok := DecodeJoined(body); ok && ours && f == "" {
			t.Error("a join's filter without words")
		}
		if filter, ok := DecodeFilter(body); ok && len(body) < headerLen {
			t.Errorf("a filter without a header: %+v", filter)
		}
	})
}
