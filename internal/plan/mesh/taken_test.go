// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"net/netip"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestTaken: a prefix is refused if it overlaps one that is there, and only then.
func TestTaken(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var is taken
		var want []netip.Prefix
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			if len(want) > 0 && rapid.IntRange(0, 3).Draw(t, "drop") == 0 {
				i := rapid.IntRange(0, len(want)-1).Draw(t, "which")
				is.drop(want[i : i+1])
				want = slices.Delete(want, i, i+1)
				continue
			}
			p := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(rapid.IntRange(0, 255).Draw(t, "addr"))}),
				rapid.SampledFrom([]int{25, 27, 29, 30, 32, 32}).Draw(t, "bits")).Masked()
			free := !slices.ContainsFunc(want, p.Overlaps)
			if got := is.add([]netip.Prefix{p}); got != free {
				t.Fatalf("%s among %v: added %v, want %v", p, want, got, free)
			}
			if free {
				want = append(want, p)
			}
		}
		slices.SortFunc(want, comparePrefix)
		if !slices.Equal(is.prefixes, want) {
			t.Fatalf("%v, want %v", is.prefixes, want)
		}
	})
}
