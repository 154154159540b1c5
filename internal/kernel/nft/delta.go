// SPDX-License-Identifier: Apache-2.0

package nft

import (
	"slices"

	"github.com/weft-net/weft/internal/kernel/nft/lang"
)

// delta is the difference between a table in the kernel and the wanted one.
type delta struct {
	makeTable            bool
	dropSets, dropChains []string
	makeSets, makeChains []string
	dropElems, makeElems map[string][]lang.Element
	dropRules            map[string][]uint64 // handles by chain
	makeRules            map[string][]placedRule
	// compared are the sets whose elements are compared already.
	compared map[string]bool
}

// placedRule is a rule to be inserted before the rule with the handle before, or at the end.
type placedRule struct {
	lang.Rule
	before uint64
}

func newDelta() *delta {
	return &delta{
		dropElems: map[string][]lang.Element{}, makeElems: map[string][]lang.Element{},
		dropRules: map[string][]uint64{}, makeRules: map[string][]placedRule{}, compared: map[string]bool{},
	}
}

// compareTables computes the difference between have, nil when there is none, and want.
func compareTables(want, have *table) *delta {
	d := newDelta()
	d.compareTables(want, have)
	return d
}

func (d *delta) compareTables(want, have *table) {
	if have == nil {
		d.makeTable = true
		have = newTable(want.Family, want.Name, false)
	}
	d.compareSets(want, have)
	d.compareChains(want, have)
	for _, ch := range have.Chains {
		for _, r := range ch.Rules {
			if slices.ContainsFunc(r.Exprs, d.uses) && !slices.Contains(d.dropRules[ch.Name], r.Handle) {
				d.dropRules[ch.Name] = append(d.dropRules[ch.Name], r.Handle)
			}
		}
	}
	for _, w := range want.Chains {
		h, _ := have.Chain(w.Name)
		if slices.Contains(d.dropChains, w.Name) {
			h.Rules = nil
		}
		d.compareRules(w, h)
	}
}

// compareRead compares the elements of a set that was read, and releases them: those of a large cluster's sets need much
// memory together.
func (d *delta) compareRead(want lang.Set, have *lang.Set) {
	if want.SameHead(*have) {
		d.compareElements(want, *have, false)
		d.compared[want.Name], have.Elements = true, nil
	}
}

// rebuilds reports whether sets or chains have to be re-created.
func (d *delta) rebuilds() bool { return len(d.dropSets)+len(d.dropChains) > 0 }

// addsOnly reports whether the difference only adds elements.
func (d *delta) addsOnly() bool {
	return !d.makeTable && !d.rebuilds() && len(d.makeSets)+len(d.makeChains)+len(d.dropElems)+len(d.dropRules)+
		len(d.makeRules) == 0
}

// uses reports whether an expression refers to a set or a chain that must be deleted.
func (d *delta) uses(e lang.Expr) bool {
	return e.Set != "" && slices.Contains(d.dropSets, e.Set) ||
		e.Verdict != nil && e.Verdict.Chain != "" && slices.Contains(d.dropChains, e.Verdict.Chain)
}

func (d *delta) drops(chainName string, r lang.Rule) bool {
	return slices.Contains(d.dropRules[chainName], r.Handle)
}

func (d *delta) compareSets(want, have *table) {
	for _, w := range want.Sets {
		h, there := have.Set(w.Name)
		if there && !h.SameHead(w) {
			d.dropSets = append(d.dropSets, w.Name)
			there = false
		}
		if !there {
			d.makeSets = append(d.makeSets, w.Name)
			d.makeElems[w.Name] = w.Elements
			continue
		}
		if !d.compared[w.Name] {
			d.compareElements(w, h, want.Shared)
		}
	}
	if want.Shared {
		return
	}
	for _, h := range have.Sets {
		if _, wanted := want.Set(h.Name); !wanted {
			d.dropSets = append(d.dropSets, h.Name)
		}
	}
}

// compareElements merges both sorted lists. It compares comments only in tables that are not shared, and in owned sets,
// where they name the owner.
func (d *delta) compareElements(want, have lang.Set, shared bool) {
	i, j := 0, 0
	for i < len(want.Elements) || j < len(have.Elements) {
		c := 0
		switch {
		case i == len(want.Elements):
			c = 1
		case j == len(have.Elements):
			c = -1
		default:
			c = lang.CompareElements(want.Elements[i], have.Elements[j])
		}
		switch {
		case c < 0:
			d.makeElems[want.Name] = append(d.makeElems[want.Name], want.Elements[i])
			i++
		case c > 0:
			if !shared {
				d.dropElems[want.Name] = append(d.dropElems[want.Name], have.Elements[j])
			}
			j++
		default:
			w, h := want.Elements[i], have.Elements[j]
			if !w.SameValue(h) || (!shared || want.Owned) && w.Comment != h.Comment {
				d.dropElems[want.Name] = append(d.dropElems[want.Name], h)
				d.makeElems[want.Name] = append(d.makeElems[want.Name], w)
			}
			i, j = i+1, j+1
		}
	}
}

func (d *delta) compareChains(want, have *table) {
	for _, w := range want.Chains {
		h, there := have.Chain(w.Name)
		if there && !h.SameHead(w) {
			d.dropChains = append(d.dropChains, w.Name)
			d.dropAll(h)
			there = false
		}
		if !there || h.Policy != w.Policy {
			d.makeChains = append(d.makeChains, w.Name)
		}
	}
	if want.Shared {
		return
	}
	for _, h := range have.Chains {
		if !want.HasChain(h.Name) {
			d.dropChains = append(d.dropChains, h.Name)
			d.dropAll(h)
		}
	}
}

func (d *delta) dropAll(c lang.Chain) {
	for _, r := range c.Rules {
		d.dropRules[c.Name] = append(d.dropRules[c.Name], r.Handle)
	}
}

// compareRules keeps the equal rules at the beginning and at the end of a chain and replaces those between.
func (d *delta) compareRules(want, have lang.Chain) {
	right := func(w, h lang.Rule) bool { return w.Same(h) && !d.drops(have.Name, h) }
	front := 0
	for front < len(want.Rules) && front < len(have.Rules) && right(want.Rules[front], have.Rules[front]) {
		front++
	}
	back := 0
	for back < len(want.Rules)-front && back < len(have.Rules)-front &&
		right(want.Rules[len(want.Rules)-1-back], have.Rules[len(have.Rules)-1-back]) {
		back++
	}
	for _, h := range have.Rules[front : len(have.Rules)-back] {
		if !d.drops(have.Name, h) {
			d.dropRules[have.Name] = append(d.dropRules[have.Name], h.Handle)
		}
	}
	var before uint64
	if back > 0 {
		before = have.Rules[len(have.Rules)-back].Handle
	}
	for _, w := range want.Rules[front : len(want.Rules)-back] {
		d.makeRules[want.Name] = append(d.makeRules[want.Name], placedRule{w, before})
	}
}
