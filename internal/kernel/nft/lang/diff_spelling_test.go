// SPDX-License-Identifier: Apache-2.0

package lang

import (
	"testing"

	"github.com/weft-net/weft/internal/state"
)

// TestDiffOfOtherSpelling: two spellings of a table are no difference, also when a chain that is spelled differently
// jumps to one that is literally equal.
func TestDiffOfOtherSpelling(t *testing.T) {
	table := func(element, rule string) []state.Table {
		return []state.Table{{
			Family: "inet", Name: "weft-t",
			Sets: []state.Set{
				{Name: "peers", Key: "ipv4_addr", Interval: true, Elements: []state.Element{{Key: []string{element}}}},
			},
			Chains: []state.Chain{
				{Name: "first", Rules: []state.NftRule{{Text: rule}}},
				{Name: "second", Rules: []state.NftRule{{Text: "ip saddr @peers accept"}}},
			},
		}}
	}
	want, have := table("172.18.0.1/32", "ip saddr 10.0.0.1/32 jump second"),
		table("172.18.0.1", "ip saddr 10.0.0.1 jump second")
	if d := Diff(want, have); len(d) > 0 {
		t.Errorf("%+v", d)
	}
	if d := Diff(want, table("172.18.0.2", "ip saddr 10.0.0.1 jump second")); len(d) == 0 {
		t.Error("another element is no difference")
	}
}
