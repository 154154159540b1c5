// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/weft-net/weft/internal/state"
)

// table is what one place's table holds: what is reached from its endpoints, and nothing else. Of endpoints it knows
// only how many it is for, and what its maps say.
type table struct {
	place  Place
	groups *groups
	users  int // endpoints
	round  int // how often it was settled; a chain that was made by the last time says what its policies do
	chains map[string]*chain
	sets   map[string]*set
	maps   [2]map[string]string // by direction: interface to verdict
	cuts   cuts                 // see Index.Cut
	was    past
	// base are the base chains, self the sets of the node's addresses, that the last Changes told.
	base []state.Chain
	self []state.Set
}

// past is what was before, of what was touched since the last Changes; nil and empty for what was not there.
type past struct {
	chains map[string]*[]state.NftRule
	sets   map[string]*[]state.Element
	maps   [2]map[string]string
}

func newTable(p Place, gs *groups) *table {
	t := &table{
		place: p, groups: gs, chains: map[string]*chain{}, sets: map[string]*set{}, cuts: cuts{now: map[Flow]bool{}},
		maps: [2]map[string]string{{}, {}},
	}
	t.forget()
	return t
}

// forget has what is now be what the next change is measured from.
func (t *table) forget() {
	t.was = past{
		chains: map[string]*[]state.NftRule{}, sets: map[string]*[]state.Element{}, maps: [2]map[string]string{{}, {}},
	}
	t.cuts.forget()
}

type chain struct {
	*chainSpec
	refs  int
	made  int // table.round then
	rules []rule
}

type set struct {
	*setSpec
	refs int
	live *group
}

// useChain makes sure of a chain and of everything that it leads to.
func (t *table) useChain(spec *chainSpec) {
	if c := t.chains[spec.name]; c != nil {
		c.refs++
		return
	}
	t.touchChain(spec.name)
	c := &chain{chainSpec: spec, refs: 1}
	t.chains[spec.name] = c
	t.fillChain(c)
}

// fillChain writes the chain's rules anew.
func (t *table) fillChain(c *chain) {
	was := c.rules
	c.rules, c.made = c.make(), t.round
	for _, r := range c.rules {
		for _, s := range r.sets() {
			t.useSet(s)
		}
		if r.to != nil {
			t.useChain(r.to)
		}
	}
	t.dropRules(was)
}

func (t *table) dropRules(rules []rule) {
	for _, r := range rules {
		for _, s := range r.sets() {
			t.dropSet(s.name)
		}
		if r.to != nil {
			t.dropChain(r.to.name)
		}
	}
}

// dropChain gives up one use of a chain, which goes with its last.
func (t *table) dropChain(name string) {
	c := t.chains[name]
	if c.refs--; c.refs > 0 {
		return
	}
	t.touchChain(name)
	delete(t.chains, name)
	t.dropRules(c.rules)
}

func (t *table) useSet(spec *setSpec) {
	s := t.sets[spec.name]
	if s == nil {
		t.touchSet(spec.name)
		s = &set{setSpec: spec}
		if spec.group != nil {
			s.live = t.groups.use(spec.group)
		}
		t.sets[spec.name] = s
	} else if spec.group == nil && s.setSpec != spec {
		t.touchSet(spec.name)
		s.setSpec = spec // the blocks of a policy that has changed
	}
	s.refs++
}

func (t *table) dropSet(name string) {
	s := t.sets[name]
	if s.refs--; s.refs > 0 {
		return
	}
	t.touchSet(name)
	delete(t.sets, name)
	if s.live != nil {
		s.live.refs--
	}
}

// touchChain remembers what a chain was.
func (t *table) touchChain(name string) {
	if _, done := t.was.chains[name]; done {
		return
	}
	t.was.chains[name] = nil
	if c := t.chains[name]; c != nil {
		rules := t.texts(c)
		t.was.chains[name] = &rules
	}
}

// touchSet remembers what a set was; of a group's only that it was there.
func (t *table) touchSet(name string) {
	if _, done := t.was.sets[name]; done {
		return
	}
	t.was.sets[name] = nil
	if s := t.sets[name]; s != nil {
		fixed := s.fixed()
		t.was.sets[name] = &fixed
	}
}

// texts are a chain's rules as they are written into the table. What is allowed to begin at a tap is remembered before
// it passes.
func (t *table) texts(c *chain) []state.NftRule {
	out := make([]state.NftRule, 0, len(c.rules))
	for _, r := range c.rules {
		if t.place.Tap != "" && r.verdict == verdictAccept {
			r.verdict = "goto begin" + c.name[strings.LastIndexByte(c.name, '/'):] // names end with the direction
		}
		out = append(out, r.text())
	}
	return out
}

// setLink has a map say the verdict for an interface; empty: none.
func (t *table) setLink(link string, dir direction, is string) {
	was := t.maps[dir][link]
	if was == is {
		return
	}
	if _, done := t.was.maps[dir][link]; !done {
		t.was.maps[dir][link] = was
	}
	if t.maps[dir][link] = is; is == "" {
		delete(t.maps[dir], link)
	}
}

func (t *table) entry(self []netip.Addr) entry { return entry{t.place, t.maps, &t.cuts, self} }

// whole is the table as a value; false when there is nothing in it.
func (t *table) whole(self []netip.Addr) (state.Table, bool) {
	in := t.entry(self)
	out := state.Table{Family: t.place.Family(), Name: t.place.Table(), Chains: in.chains()}
	if len(out.Chains) == 0 {
		return out, false
	}
	if t.place.Tap != "" {
		out.Sets = tapSets()
	}
	for _, dir := range directions() {
		if all := t.maps[dir]; len(all) > 0 && !t.place.single() {
			out.Sets = append(out.Sets, mapSet(dir, all))
		}
	}
	out.Sets = slices.Concat(out.Sets, t.cuts.sets(), in.selfSets())
	for _, name := range slices.Sorted(maps.Keys(t.sets)) {
		out.Sets = append(out.Sets, t.fullSet(t.sets[name]))
	}
	for _, name := range slices.Sorted(maps.Keys(t.chains)) {
		out.Chains = append(out.Chains, state.Chain{Name: name, Rules: t.texts(t.chains[name])})
	}
	return out, true
}

func mapSet(dir direction, all map[string]string) state.Set {
	s := mapHead(dir)
	for _, link := range slices.Sorted(maps.Keys(all)) {
		s.Elements = append(s.Elements, verdictOf(link, all[link]))
	}
	return s
}

func mapHead(dir direction) state.Set {
	return state.Set{Name: dir.String(), Key: "ifname", Data: "verdict"}
}

func verdictOf(link, verdict string) state.Element {
	return state.Element{Key: []string{`"` + link + `"`}, Val: []string{verdict}}
}

func (t *table) fullSet(s *set) state.Set {
	out := s.head()
	if s.live == nil {
		out.Elements = s.fixed()
		return out
	}
	for _, e := range t.groups.elements(s.live) {
		if s.takes(e) {
			out.Elements = append(out.Elements, s.words(e))
		}
	}
	return out
}
