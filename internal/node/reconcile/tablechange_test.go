// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/weft-net/weft/internal/state"
)

// TestChangedElements: from any elements to any others, with repetitions, the changes lead to the new ones, delete
// nothing that stays, and add nothing that is there.
func TestChangedElements(t *testing.T) {
	element := rapid.Custom(func(t *rapid.T) state.Element {
		e := state.Element{Key: []string{fmt.Sprint(rapid.IntRange(0, 12).Draw(t, "key"))}}
		// Equal keys have equal values, except sometimes: a value changes.
		if rapid.IntRange(0, 9).Draw(t, "map") == 0 {
			e.Val = []string{"accept"}
		}
		return e
	})
	elements := rapid.SliceOfN(element, 0, 24)
	rapid.Check(t, func(t *rapid.T) {
		old := elements.Draw(t, "old")
		now := elements.Draw(t, "now")
		if rapid.Bool().Draw(t, "near") { // as usual: most elements stay in their order
			now = append([]state.Element(nil), old...)
			for range rapid.IntRange(0, 3).Draw(t, "changes") {
				at := rapid.IntRange(0, len(now)).Draw(t, "at")
				if rapid.Bool().Draw(t, "insert") || at == len(now) {
					now = append(now[:at:at], append([]state.Element{element.Draw(t, "new")}, now[at:]...)...)
				} else {
					now = append(now[:at:at], now[at+1:]...)
				}
			}
		}
		gone, added := changedElements(old, now)
		have, want := map[string]bool{}, map[string]bool{}
		for _, e := range old {
			have[elementID(e)] = true
		}
		for _, e := range now {
			want[elementID(e)] = true
		}
		for _, e := range gone {
			if id := elementID(e); !have[id] || want[id] {
				t.Fatalf("%v is deleted", e)
			}
			delete(have, elementID(e))
		}
		for _, e := range added {
			if id := elementID(e); have[id] || !want[id] {
				t.Fatalf("%v is added", e)
			}
			have[elementID(e)] = true
		}
		if len(have) != len(want) {
			t.Fatalf("%d elements, want %d", len(have), len(want))
		}
	})
}

// TestTableChange: what is more than elements is written with the whole table.
func TestTableChange(t *testing.T) {
	table := func(change func(*state.Table)) state.Table {
		out := state.Table{
			Family: "inet", Name: "t",
			Sets:   []state.Set{{Name: "s", Key: "ipv4_addr", Elements: []state.Element{{Key: []string{"10.0.0.1"}}}}},
			Chains: []state.Chain{{Name: "c", Rules: []state.NftRule{{Text: "accept"}}}},
		}
		if change != nil {
			change(&out)
		}
		return out
	}
	for what, change := range map[string]func(*state.Table){
		"a chain":          func(t *state.Table) { t.Chains[0].Rules[0].Text = "drop" },
		"another chain":    func(t *state.Table) { t.Chains = append(t.Chains, state.Chain{Name: "d"}) },
		"another set":      func(t *state.Table) { t.Sets = append(t.Sets, state.Set{Name: "u", Key: "ipv4_addr"}) },
		"another set name": func(t *state.Table) { t.Sets[0].Name = "u" },
		"another key":      func(t *state.Table) { t.Sets[0].Key = "ipv6_addr" },
		"intervals":        func(t *state.Table) { t.Sets[0].Interval = true },
		"shared":           func(t *state.Table) { t.Shared = true },
	} {
		if c, ok := tableChange(table(nil), table(change)); ok {
			t.Errorf("%s: %+v", what, c)
		}
	}
	c, ok := tableChange(table(nil), table(func(t *state.Table) {
		t.Sets[0].Elements = []state.Element{{Key: []string{"10.0.0.2"}}}
	}))
	if !ok || len(c.AddElements) != 1 || len(c.DeleteElements) != 1 ||
		c.AddElements[0].Elements[0].Key[0] != "10.0.0.2" || c.DeleteElements[0].Elements[0].Key[0] != "10.0.0.1" {
		t.Errorf("%v %+v", ok, c)
	}
	if c, ok := tableChange(table(nil), table(nil)); !ok || len(c.AddElements)+len(c.DeleteElements) > 0 {
		t.Errorf("%v %+v", ok, c)
	}
}
