// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"net/netip"
	"testing"

	"pgregory.net/rapid"

	"github.com/weft-net/weft/internal/state"
)

func randomAddr(t *rapid.T, six bool) netip.Addr {
	if six {
		var b [16]byte
		copy(b[:], rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "bytes"))
		return netip.AddrFrom16(b)
	}
	return netip.AddrFrom4([4]byte(rapid.SliceOfN(rapid.Byte(), 4, 4).Draw(t, "bytes")))
}

// TestRangeOfPrefix: the range of a prefix ends with its last address and is that prefix again, and a range that is one
// address longer or shorter is no prefix, or another one.
func TestRangeOfPrefix(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := randomAddr(t, rapid.Bool().Draw(t, "six"))
		bits := rapid.IntRange(0, a.BitLen()).Draw(t, "bits")
		p := netip.PrefixFrom(a, bits).Masked()
		last := lastOf(p)
		if !p.Contains(last) || last.Next().IsValid() && p.Contains(last.Next()) || last.BitLen() != a.BitLen() {
			t.Fatalf("the last address of %s is %s", p, last)
		}
		r := addrRange{p.Addr(), last}
		if got, ok := r.prefix(); !ok || got != p {
			t.Fatalf("%s to %s: %s %v", r.first, r.last, got, ok)
		}
		if next := last.Next(); next.IsValid() {
			longer := addrRange{p.Addr(), next}
			if got, ok := longer.prefix(); ok && (got.Addr() != longer.first || lastOf(got) != longer.last) {
				t.Fatalf("%s to %s: %s", longer.first, longer.last, got)
			}
		}
		other := addrRange{a, randomAddr(t, a.Is6())}
		if got, ok := other.prefix(); ok && (got.Addr() != other.first || lastOf(got) != other.last) {
			t.Fatalf("%s to %s: %s", other.first, other.last, got)
		}
	})
}

// TestWithoutRanges: the differences of two sets of ranges are those of their elements.
func TestWithoutRanges(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ranges := func(label string) setSpec {
			var all []addrRange
			for range rapid.IntRange(0, 12).Draw(t, label) {
				p := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, byte(rapid.IntRange(0, 20).Draw(t, "b")), 0}),
					rapid.IntRange(22, 26).Draw(t, "bits")).Masked()
				all = append(all, addrRange{p.Addr(), lastOf(p)})
			}
			return setSpec{ranges: mergeRanges(all)}
		}
		one, other := ranges("one"), ranges("other")
		in := map[string]bool{}
		for _, e := range other.staticElements() {
			in[e.Key[0]] = true
		}
		var want []state.Element
		for _, e := range one.staticElements() {
			if !in[e.Key[0]] {
				want = append(want, e)
			}
		}
		got := one.without(&other)
		if len(got) != len(want) {
			t.Fatalf("%v, want %v", got, want)
		}
		for i := range got {
			if got[i].Key[0] != want[i].Key[0] {
				t.Fatalf("%v, want %v", got, want)
			}
		}
	})
}
