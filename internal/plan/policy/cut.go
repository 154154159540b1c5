// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"maps"
	"slices"

	"github.com/weft-net/weft/internal/state"
)

// cuts are the flows of a table that are dropped, as their replies are written.
type cuts struct {
	now map[Flow]bool
	was map[Flow]bool // of those that were touched since the last forget
}

func (c *cuts) forget() { c.was = map[Flow]bool{} }

// set notes whether a flow is cut.
func (c *cuts) set(r Flow, is bool) {
	if c.now[r] == is {
		return
	}
	if _, done := c.was[r]; !done {
		c.was[r] = !is
	}
	if delete(c.now, r); is {
		c.now[r] = true
	}
}

func (c *cuts) has(six bool) bool {
	for f := range c.now {
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

// sets are the sets of what is cut, none of a family in which nothing is.
func (c *cuts) sets() []state.Set {
	var out []state.Set
	for _, six := range []bool{false, true} {
		s := cutHead(six)
		for _, f := range slices.SortedFunc(maps.Keys(c.now), Flow.compare) {
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

// change notes what has changed since the last forget.
func (c *cuts) change(to *state.TableChange) {
	for _, six := range []bool{false, true} {
		count := 0
		for f := range c.now {
			if f.Src.Is6() == six {
				count++
			}
		}
		before := count
		var gone, came []state.Element
		for _, f := range slices.SortedFunc(maps.Keys(c.was), Flow.compare) {
			switch was, is := c.was[f], c.now[f]; {
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
			to.MakeSets = append(to.MakeSets, head)
		case before > 0 && count == 0:
			to.DropSets = append(to.DropSets, head.Name)
		default:
			elements(to, head, gone, came)
		}
	}
}
