// SPDX-License-Identifier: Apache-2.0

package addrspan

import (
	"net/netip"
	"testing"

	"pgregory.net/rapid"
)

func addr(n int) netip.Addr { return netip.AddrFrom4([4]byte{10, 0, 0, byte(n)}) }

// drawSpan draws a span of 10.0.0.0/26.
func drawSpan(t *rapid.T, label string) Span {
	from := rapid.IntRange(0, 63).Draw(t, label+" from")
	return Span{addr(from), addr(rapid.IntRange(from, 63).Draw(t, label+" to"))}
}

// TestSets compares the functions with the sets of addresses that the spans stand for.
func TestSets(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all := []Span{drawSpan(t, "a"), drawSpan(t, "b")}
		other := drawSpan(t, "other")
		prefix := netip.PrefixFrom(addr(rapid.IntRange(0, 63).Draw(t, "prefix")), rapid.IntRange(26, 32).Draw(t, "bits")).Masked()
		overlap := 0
		for i := range 64 {
			a := addr(i)
			is := In(all, a)
			if is != (all[0].Contains(a) || all[1].Contains(a)) {
				t.Fatalf("In(%v, %s) is %t", all, a, is)
			}
			if got := In(Without(all, other), a); got != (is && !other.Contains(a)) {
				t.Fatalf("%s in %v without %s: %t", a, all, other, got)
			}
			if got := In(Clip(all, other), a); got != (is && other.Contains(a)) {
				t.Fatalf("%s in %v clipped to %s: %t", a, all, other, got)
			}
			if Whole(prefix).Contains(a) != prefix.Contains(a) {
				t.Fatalf("%s in %s: %t", a, Whole(prefix), !prefix.Contains(a))
			}
			if other.Contains(a) && prefix.Contains(a) {
				overlap++
			}
		}
		if other.Overlaps(prefix) != (overlap > 0) {
			t.Fatalf("%s overlaps %s: %t", other, prefix, overlap == 0)
		}
		n := 0
		Each(prefix, func(a netip.Addr) bool { n++; return prefix.Contains(a) })
		if n != Size(prefix) || n != Count([]Span{Whole(prefix)}) {
			t.Fatalf("%s has %d addresses; Size %d, Count %d", prefix, n, Size(prefix), Count([]Span{Whole(prefix)}))
		}
	})
}

// TestFamilies: spans of one family have no addresses of the other, and Count does not overflow.
func TestFamilies(t *testing.T) {
	six := netip.MustParsePrefix("::/64")
	if Whole(six).Overlaps(netip.MustParsePrefix("0.0.0.0/8")) {
		t.Error("::/64 overlaps 0.0.0.0/8")
	}
	four := []Span{Whole(netip.MustParsePrefix("0.0.0.0/24"))}
	if got := Count(Without(four, Whole(six))); got != 256 {
		t.Errorf("%d addresses without those of ::/64, want 256", got)
	}
	if got := Count([]Span{Whole(six)}); got != 1<<30 {
		t.Errorf("%d addresses in ::/64", got)
	}
	for text, want := range map[string]string{
		"10.0.0.0/24": "10.0.0.1-10.0.0.254", "10.0.0.4/31": "10.0.0.4-10.0.0.5", "10.0.0.4/32": "10.0.0.4-10.0.0.4",
	} {
		if got := Usable(netip.MustParsePrefix(text)).String(); got != want {
			t.Errorf("usable addresses of %s: %s, want %s", text, got, want)
		}
	}
}
