// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/weft-net/weft/internal/state"
)

// Change is a change of a place's table.
type Change struct {
	Point EnforcementPoint
	// Gone: the table is not needed any more; the change is empty. Made: the table is new; the change is all of it.
	Gone, Made bool
	state.TableChange
}

// change returns what changed in the table since the last Changes; false: nothing.
func (t *table) change(self []netip.Addr) (Change, bool) {
	c := Change{Point: t.place, TableChange: state.TableChange{Family: t.place.Family(), Name: t.place.Table()}}
	in := t.entry(self)
	base := in.chains()
	was, wasSelf := t.base, t.self
	t.base, t.self = base, in.selfSets()
	if len(base) == 0 {
		c.Gone = len(was) > 0
		return c, c.Gone
	}
	if len(was) == 0 { // there was no table
		full, _ := t.full(self)
		c.Made, c.AddSets, c.AddChains = true, full.Sets, full.Chains
		return c, true
	}
	t.changeSets(&c.TableChange)
	t.changeMaps(&c.TableChange)
	t.dropped.change(&c.TableChange)
	changeSelf(&c.TableChange, wasSelf, t.self)
	t.changeChains(&c.TableChange, was, base)
	return c, !c.Empty()
}

func (t *table) changeSets(c *state.TableChange) {
	for _, name := range slices.Sorted(maps.Keys(t.was.sets)) {
		was, s := t.was.sets[name], t.sets[name]
		switch {
		case was == nil && s == nil:
		case was == nil:
			c.AddSets = append(c.AddSets, t.fullSet(s))
		case s == nil:
			c.DeleteSets = append(c.DeleteSets, name)
		case s.live == nil:
			elements(c, s.definition(), was.without(s.setSpec), s.without(was))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(t.sets)) {
		s := t.sets[name]
		if was, touched := t.was.sets[name]; s.live == nil || len(s.live.pending) == 0 || touched && was == nil {
			continue
		}
		var gone, came []state.Element
		for _, e := range slices.SortedFunc(maps.Keys(s.live.pending), element.compare) {
			switch {
			case !s.matchesFamily(e):
			case s.live.pending[e]:
				came = append(came, s.element(e))
			default:
				gone = append(gone, s.element(e))
			}
		}
		elements(c, s.definition(), gone, came)
	}
}

func changeSelf(c *state.TableChange, was, is []state.Set) {
	find := func(in []state.Set, name string) (state.Set, bool) {
		i := slices.IndexFunc(in, func(s state.Set) bool { return s.Name == name })
		if i < 0 {
			return state.Set{}, false
		}
		return in[i], true
	}
	for _, now := range is {
		old, there := find(was, now.Name)
		if !there {
			c.AddSets = append(c.AddSets, now)
			continue
		}
		elements(c, now, missingElements(old.Elements, now.Elements), missingElements(now.Elements, old.Elements))
	}
	for _, old := range was {
		if _, there := find(is, old.Name); !there {
			c.DeleteSets = append(c.DeleteSets, old.Name)
		}
	}
}

func (t *table) changeMaps(c *state.TableChange) {
	if t.place.single() {
		return // its only link is in the chains
	}
	for _, dir := range directions() {
		head, is := mapHead(dir), t.maps[dir]
		before := len(is) // how many there were
		var gone, came []state.Element
		for _, link := range slices.Sorted(maps.Keys(t.was.maps[dir])) {
			was, now := t.was.maps[dir][link], is[link]
			if was == now {
				continue
			}
			if was != "" {
				gone = append(gone, verdictOf(link, was))
				before++
			}
			if now != "" {
				came = append(came, verdictOf(link, now))
				before--
			}
		}
		switch {
		case before == 0 && len(is) > 0:
			c.AddSets = append(c.AddSets, mapSet(dir, is))
		case before > 0 && len(is) == 0:
			elements(c, head, gone, nil) // the kernel wants it: chains go before sets, and elements lead to chains
			c.DeleteSets = append(c.DeleteSets, head.Name)
		default:
			elements(c, head, gone, came)
		}
	}
}

func (t *table) changeChains(c *state.TableChange, was, base []state.Chain) {
	for _, b := range base {
		if !slices.ContainsFunc(was, func(o state.Chain) bool { return o.Name == b.Name && slices.Equal(o.Rules, b.Rules) }) {
			c.AddChains = append(c.AddChains, b)
		}
	}
	for _, b := range was {
		if !slices.ContainsFunc(base, func(o state.Chain) bool { return o.Name == b.Name }) {
			c.DeleteChains = append(c.DeleteChains, b.Name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(t.was.chains)) {
		old, now := t.was.chains[name], t.chains[name]
		switch {
		case now == nil && old != nil:
			c.DeleteChains = append(c.DeleteChains, name)
		case now == nil:
		default:
			if rules := t.texts(now); old == nil || !slices.Equal(*old, rules) {
				c.AddChains = append(c.AddChains, state.Chain{Name: name, Rules: rules})
			}
		}
	}
}
