// SPDX-License-Identifier: Apache-2.0

package lang

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weft-net/weft/internal/state"
)

// TestDiffOfElements: of thousands of elements those are reported that one table has alone, or with another value; in a
// shared table not those that the kernel has alone.
func TestDiffOfElements(t *testing.T) {
	const equal = 20_000
	table := func(shared bool, set, mapped, ranges []state.Element) []state.Table {
		for i := range equal {
			addr := fmt.Sprintf("10.%d.%d.%d", i>>16, i>>8&255, i&255)
			set = append(set, state.Element{Key: []string{addr}})
			mapped = append(mapped, state.Element{Key: []string{addr}, Val: []string{"accept"}})
			ranges = append(ranges, state.Element{Key: []string{addr + "/31"}})
			ranges = ranges[:len(ranges)-i%2] // each range once
		}
		return []state.Table{{
			Family: "inet", Name: "weft-t", Shared: shared, Sets: []state.Set{
				{Name: "set", Key: "ipv4_addr", Elements: set},
				{Name: "map", Key: "ipv4_addr", Data: "verdict", Elements: mapped},
				{Name: "ranges", Key: "ipv4_addr", Interval: true, Elements: ranges},
			},
		}}
	}
	element := func(key string, val ...string) []state.Element {
		return []state.Element{{Key: []string{key}, Val: val}}
	}
	const label = "nft table inet weft-t: "
	missing := []state.Difference{
		{Want: label + "set set element 192.0.2.1"},
		{Want: label + "set map element 192.0.2.1 accept", Have: "set map element 192.0.2.1 drop"},
		{Want: label + "set ranges element 192.0.2.0/24"},
	}
	more := []state.Difference{
		{Want: label + "no set set element 192.0.2.2", Have: "set set element 192.0.2.2"},
		{Want: label + "no set ranges element 192.0.2.0/25", Have: "set ranges element 192.0.2.0/25"},
	}
	for shared, expected := range map[bool][]state.Difference{false: append(missing, more...), true: missing} {
		want := table(shared, element("192.0.2.1"), element("192.0.2.1", "accept"), element("192.0.2.0/24"))
		have := table(shared, element("192.0.2.2"), element("192.0.2.1", "drop"), element("192.0.2.0/25"))
		if d := cmp.Diff(expected, Diff(want, have)); d != "" {
			t.Errorf("shared %t (-want +got):\n%s", shared, d)
		}
		if got := Diff(want, want); len(got) > 0 {
			t.Errorf("shared %t: a table differs from itself: %v", shared, got)
		}
	}
}

// BenchmarkDiff compares a table of a large cluster with itself.
func BenchmarkDiff(b *testing.B) {
	var all []state.Element
	for i := range 10_000 {
		all = append(all, state.Element{Key: []string{fmt.Sprintf("10.%d.%d.0/24", i>>8, i&255)}})
	}
	t := []state.Table{{Family: "inet", Name: "weft-t", Sets: []state.Set{
		{Name: "ranges", Key: "ipv4_addr", Interval: true, Elements: all},
	}}}
	b.ReportAllocs()
	for b.Loop() {
		if d := Diff(t, t); len(d) > 0 {
			b.Fatal(d)
		}
	}
}
