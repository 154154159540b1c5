// SPDX-License-Identifier: Apache-2.0

package view

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// Numbers in names are compared by value, and the order has no circle.
func TestCompareNames(t *testing.T) {
	names := []string{"n10", "n1x", "n2", "n", "n1", "n02", "m3-b2", "m3-b10", "m3"}
	slices.SortFunc(names, compareNames)
	if want := []string{"m3", "m3-b2", "m3-b10", "n", "n1", "n1x", "n02", "n2", "n10"}; !slices.Equal(names, want) {
		t.Errorf("order %q, want %q", names, want)
	}
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.StringMatching(`[ab0-2]{0,4}`)
		a, b, c := name.Draw(t, "a"), name.Draw(t, "b"), name.Draw(t, "c")
		if compareNames(a, b) != -compareNames(b, a) || (compareNames(a, b) == 0) != (a == b) {
			t.Errorf("%q and %q: %d, and %d", a, b, compareNames(a, b), compareNames(b, a))
		}
		if compareNames(a, b) < 0 && compareNames(b, c) < 0 && compareNames(a, c) >= 0 {
			t.Errorf("%q is before %q, that before %q, and that before the first", a, b, c)
		}
	})
}
