// SPDX-License-Identifier: Apache-2.0

package nft

import "slices"

// delta is what separates a table in the kernel from the wanted one.
type delta struct {
	makeTable            bool
	dropSets, dropChains []string
	makeSets, makeChains []string
	dropElems, makeElems map[string][]elem
	dropRules            map[string][]uint64 // handles by chain
	makeRules            map[string][]placedRule
}

// placedRule is a rule to be made in front of the rule with handle before, or at the end.
type placedRule struct {
	rule
	before uint64
}

// compareTables finds what separates have, nil when there is none, from want.
func compareTables(want, have *table) *delta {
	missing := have == nil
	if missing {
		have = newTable(want.family, want.name, false)
	}
	d := &delta{
		makeTable: missing,

		dropElems: map[string][]elem{}, makeElems: map[string][]elem{},
		dropRules: map[string][]uint64{}, makeRules: map[string][]placedRule{},
	}
	d.compareSets(want, have)
	d.compareChains(want, have)
	for _, ch := range have.chains {
		for _, r := range ch.rules {
			if slices.ContainsFunc(r.exprs, d.uses) && !slices.Contains(d.dropRules[ch.name], r.handle) {
				d.dropRules[ch.name] = append(d.dropRules[ch.name], r.handle)
			}
		}
	}
	for _, w := range want.chains {
		h, _ := have.chain(w.name)
		if slices.Contains(d.dropChains, w.name) {
			h.rules = nil
		}
		d.compareRules(w, h)
	}
	return d
}

// rebuilds tells whether sets or chains have to be made anew.
func (d *delta) rebuilds() bool { return len(d.dropSets)+len(d.dropChains) > 0 }

// addsOnly tells whether there is nothing to do but to add elements.
func (d *delta) addsOnly() bool {
	return !d.makeTable && !d.rebuilds() && len(d.makeSets)+len(d.makeChains)+len(d.dropElems)+len(d.dropRules)+len(d.makeRules) == 0
}

// uses tells whether an expression needs a set or a chain that must go.
func (d *delta) uses(e expr) bool {
	return e.set != "" && slices.Contains(d.dropSets, e.set) ||
		e.verdict != nil && e.verdict.chain != "" && slices.Contains(d.dropChains, e.verdict.chain)
}

func (d *delta) drops(chainName string, r rule) bool {
	return slices.Contains(d.dropRules[chainName], r.handle)
}

func (d *delta) compareSets(want, have *table) {
	for _, w := range want.sets {
		h, there := have.set(w.name)
		if there && !h.sameHead(w) {
			d.dropSets = append(d.dropSets, w.name)
			there = false
		}
		if !there {
			d.makeSets = append(d.makeSets, w.name)
			d.makeElems[w.name] = w.elems
			continue
		}
		d.compareElements(w, h, want.shared)
	}
	if want.shared {
		return
	}
	for _, h := range have.sets {
		if _, wanted := want.set(h.name); !wanted {
			d.dropSets = append(d.dropSets, h.name)
		}
	}
}

// compareElements walks both sorted lists at once. Comments are written, and compared only where nobody shares, or where they
// say whose an element is now.
func (d *delta) compareElements(want, have set, shared bool) {
	i, j := 0, 0
	for i < len(want.elems) || j < len(have.elems) {
		c := 0
		switch {
		case i == len(want.elems):
			c = 1
		case j == len(have.elems):
			c = -1
		default:
			c = compareElems(want.elems[i], have.elems[j])
		}
		switch {
		case c < 0:
			d.makeElems[want.name] = append(d.makeElems[want.name], want.elems[i])
			i++
		case c > 0:
			if !shared {
				d.dropElems[want.name] = append(d.dropElems[want.name], have.elems[j])
			}
			j++
		default:
			w, h := want.elems[i], have.elems[j]
			if !w.sameValue(h) || (!shared || want.owned) && w.comment != h.comment {
				d.dropElems[want.name] = append(d.dropElems[want.name], h)
				d.makeElems[want.name] = append(d.makeElems[want.name], w)
			}
			i, j = i+1, j+1
		}
	}
}

func (d *delta) compareChains(want, have *table) {
	for _, w := range want.chains {
		h, there := have.chain(w.name)
		if there && !h.sameHead(w) {
			d.dropChains = append(d.dropChains, w.name)
			d.dropAll(h)
			there = false
		}
		if !there || h.policy != w.policy {
			d.makeChains = append(d.makeChains, w.name)
		}
	}
	if want.shared {
		return
	}
	for _, h := range have.chains {
		if !want.hasChain(h.name) {
			d.dropChains = append(d.dropChains, h.name)
			d.dropAll(h)
		}
	}
}

func (d *delta) dropAll(c chain) {
	for _, r := range c.rules {
		d.dropRules[c.name] = append(d.dropRules[c.name], r.handle)
	}
}

// compareRules keeps the rules at the beginning and at the end of a chain that are right and exchanges those between.
func (d *delta) compareRules(want, have chain) {
	right := func(w, h rule) bool { return w.same(h) && !d.drops(have.name, h) }
	front := 0
	for front < len(want.rules) && front < len(have.rules) && right(want.rules[front], have.rules[front]) {
		front++
	}
	back := 0
	for back < len(want.rules)-front && back < len(have.rules)-front &&
		right(want.rules[len(want.rules)-1-back], have.rules[len(have.rules)-1-back]) {
		back++
	}
	for _, h := range have.rules[front : len(have.rules)-back] {
		if !d.drops(have.name, h) {
			d.dropRules[have.name] = append(d.dropRules[have.name], h.handle)
		}
	}
	var before uint64
	if back > 0 {
		before = have.rules[len(have.rules)-back].handle
	}
	for _, w := range want.rules[front : len(want.rules)-back] {
		d.makeRules[want.name] = append(d.makeRules[want.name], placedRule{w, before})
	}
}
