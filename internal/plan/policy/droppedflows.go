// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"maps"
	"slices"

	"github.com/weft-net/weft/internal/state"
)

// droppedFlows are the reply flows that a table drops.
type droppedFlows struct {
	now map[Flow]bool
	was map[Flow]bool // of those that changed since the last forget
}

func (c *droppedFlows) forget() { c.was = map[Flow]bool{} }

// set adds or removes a flow.
func (c *droppedFlows) set(r Flow, is bool) {
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

func (c *droppedFlows) has(six bool) bool {
	for f := range c.now {
		if f.Src.Is6() == six {
			return true
		}
	}
	return false
}

func droppedFlowsSet(six bool) state.Set {
	addr := "ipv" + family(six) + "_addr"
	return state.Set{Name: "cut" + family(six), Key: addr + " . " + addr + " . inet_proto . inet_service . inet_service"}
}

// sets returns the sets of dropped flows, none for a family without any.
func (c *droppedFlows) sets() []state.Set {
	var out []state.Set
	for _, six := range []bool{false, true} {
		s := droppedFlowsSet(six)
		for _, f := range slices.SortedFunc(maps.Keys(c.now), Flow.compare) {
			if f.Src.Is6() == six {
				s.Elements = append(s.Elements, f.element())
			}
		}
		if len(s.Elements) > 0 {
			out = append(out, s)
		}
	}
	return out
}

// change adds what has changed since the last forget.
func (c *droppedFlows) change(to *state.TableChange) {
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
				gone = append(gone, f.element())
				before++
			default:
				came = append(came, f.element())
				before--
			}
		}
		head := droppedFlowsSet(six)
		switch {
		case before == 0 && count > 0:
			head.Elements = came
			to.AddSets = append(to.AddSets, head)
		case before > 0 && count == 0:
			to.DeleteSets = append(to.DeleteSets, head.Name)
		default:
			elements(to, head, gone, came)
		}
	}
}
