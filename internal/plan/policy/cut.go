// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"maps"
	"slices"

	"github.com/weft-net/weft/internal/state"
)

func (t *table) cutting(r Flow, is bool) {
	if t.cuts[r] == is {
		return
	}
	if _, done := t.was.cuts[r]; !done {
		t.was.cuts[r] = !is
	}
	if delete(t.cuts, r); is {
		t.cuts[r] = true
	}
}

func (t *table) hasCuts(six bool) bool {
	for f := range t.cuts {
		if f.Src.Is6() == six {
			return true
		}
	}
	return false
}

func cutHead(six bool) state.Set {
	addr := "ipv" + family(six) + "_addr"
	return state.Set{Name: "cut" + family(six), Key: addr + " . " + addr + " . inet_proto . inet_service . inet_service"}
}

// cutSets are the sets of what is cut, none of a family in which nothing is.
func (t *table) cutSets() []state.Set {
	var out []state.Set
	for _, six := range []bool{false, true} {
		s := cutHead(six)
		for _, f := range slices.SortedFunc(maps.Keys(t.cuts), Flow.compare) {
			if f.Src.Is6() == six {
				s.Elements = append(s.Elements, f.words())
			}
		}
		if len(s.Elements) > 0 {
			out = append(out, s)
		}
	}
	return out
}

func (t *table) changeCuts(c *state.TableChange) {
	for _, six := range []bool{false, true} {
		count := 0
		for f := range t.cuts {
			if f.Src.Is6() == six {
				count++
			}
		}
		before := count
		var gone, came []state.Element
		for _, f := range slices.SortedFunc(maps.Keys(t.was.cuts), Flow.compare) {
			switch was, is := t.was.cuts[f], t.cuts[f]; {
			case f.Src.Is6() != six || was == is:
			case was:
				gone = append(gone, f.words())
				before++
			default:
				came = append(came, f.words())
				before--
			}
		}
		head := cutHead(six)
		switch {
		case before == 0 && count > 0:
			head.Elements = came
			c.MakeSets = append(c.MakeSets, head)
		case before > 0 && count == 0:
			c.DropSets = append(c.DropSets, head.Name)
		default:
			elements(c, head, gone, came)
		}
	}
}
