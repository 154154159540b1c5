// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/weft-net/weft/internal/state"
)

// Change is what of a place's table changed.
type Change struct {
	Place Place
	// Gone: the table is not needed any more; the change is empty. Made: it was not needed before; the change is all of
	// it.
	Gone, Made bool
	state.TableChange
}

// change is what separates the table from what the last Changes told of it; false: nothing.
func (t *table) change(self []netip.Addr) (Change, bool) {
	c := Change{Place: t.place, TableChange: state.TableChange{Family: t.place.Family(), Name: t.place.Table()}}
	in := t.entry(self)
	base := in.chains()
	was, wasSelf := t.base, t.self
	t.base, t.self = base, in.selfSets()
	if len(base) == 0 {
		c.Gone = len(was) > 0
		return c, c.Gone
	}
	if len(was) == 0 { // there was no table
		whole, _ := t.whole(self)
		c.Made, c.MakeSets, c.MakeChains = true, whole.Sets, whole.Chains
		return c, true
	}
	t.changeSets(&c.TableChange)
	t.changeMaps(&c.TableChange)
	t.cuts.change(&c.TableChange)
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
			c.MakeSets = append(c.MakeSets, t.fullSet(s))
		case s == nil:
			c.DropSets = append(c.DropSets, name)
		case s.live == nil:
			elements(c, s.head(), lacking(*was, s.fixed()), lacking(s.fixed(), *was))
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
			case !s.takes(e):
			case s.live.pending[e]:
				came = append(came, s.words(e))
			default:
				gone = append(gone, s.words(e))
			}
		}
		elements(c, s.head(), gone, came)
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
			c.MakeSets = append(c.MakeSets, now)
			continue
		}
		elements(c, now, lacking(old.Elements, now.Elements), lacking(now.Elements, old.Elements))
	}
	for _, old := range was {
		if _, there := find(is, old.Name); !there {
			c.DropSets = append(c.DropSets, old.Name)
		}
	}
}

func (t *table) changeMaps(c *state.TableChange) {
	if t.place.single() {
		return // its only link stands in the chains
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
			c.MakeSets = append(c.MakeSets, mapSet(dir, is))
		case before > 0 && len(is) == 0:
			elements(c, head, gone, nil) // the kernel wants it: chains go before sets, and elements lead to chains
			c.DropSets = append(c.DropSets, head.Name)
		default:
			elements(c, head, gone, came)
		}
	}
}

func (t *table) changeChains(c *state.TableChange, was, base []state.Chain) {
	for _, b := range base {
		if !slices.ContainsFunc(was, func(o state.Chain) bool { return o.Name == b.Name && slices.Equal(o.Rules, b.Rules) }) {
			c.MakeChains = append(c.MakeChains, b)
		}
	}
	for _, b := range was {
		if !slices.ContainsFunc(base, func(o state.Chain) bool { return o.Name == b.Name }) {
			c.DropChains = append(c.DropChains, b.Name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(t.was.chains)) {
		old, now := t.was.chains[name], t.chains[name]
		switch {
		case now == nil && old != nil:
			c.DropChains = append(c.DropChains, name)
		case now == nil:
		default:
			if rules := t.texts(now); old == nil || !slices.Equal(*old, rules) {
				c.MakeChains = append(c.MakeChains, state.Chain{Name: name, Rules: rules})
			}
		}
	}
}
