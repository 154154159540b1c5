// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/weft-net/weft/internal/state"
)

// table is the content of one place's table: the chains and sets that its endpoints use, and nothing else. It only
// counts its endpoints, and has their verdicts in its maps.
type table struct {
	place   EnforcementPoint
	groups  *groups
	users   int // endpoints
	round   int // the number of updates; a chain of the last round is up to date
	chains  map[string]*chain
	sets    map[string]*set
	maps    [2]map[string]string // by direction: interface to verdict
	dropped droppedFlows         // see Index.DropReplies
	ported  bool                 // of the node's: policies are enforced at ports
	host    []state.Chain        // of the node's: the base chains of host endpoints
	was     previous
	// base are the base chains, self the sets of the node's addresses, as of the last Changes.
	base []state.Chain
	self []state.Set
}

// previous is the state as of the last Changes of what changed since; nil or empty for what did not exist.
type previous struct {
	chains map[string]*[]state.NftRule
	sets   map[string]*setSpec
	maps   [2]map[string]string
}

func newTable(p EnforcementPoint, gs *groups) *table {
	t := &table{
		place:   p,
		groups:  gs,
		chains:  map[string]*chain{},
		sets:    map[string]*set{},
		dropped: droppedFlows{now: map[droppedFlow]bool{}},
		maps:    [2]map[string]string{{}, {}},
	}
	t.forget()
	return t
}

// forget makes the current state the base of the next change.
func (t *table) forget() {
	t.was = previous{
		chains: map[string]*[]state.NftRule{}, sets: map[string]*setSpec{}, maps: [2]map[string]string{{}, {}},
	}
	t.dropped.forget()
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

// useChain adds a use of a chain and of everything that it refers to.
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

// fillChain writes the chain's rules again.
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

// dropChain removes one use of a chain, which is deleted with the last.
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

// touchChain stores the previous state of a chain.
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

// touchSet stores the previous state of a set; for a group's set only that it existed.
func (t *table) touchSet(name string) {
	if _, done := t.was.sets[name]; done {
		return
	}
	t.was.sets[name] = nil
	if s := t.sets[name]; s != nil {
		t.was.sets[name] = s.setSpec
	}
}

// texts returns a chain's rules for the kernel. At a tap, an allowed flow is tracked before its first packet passes.
func (t *table) texts(c *chain) []state.NftRule {
	out := make([]state.NftRule, 0, len(c.rules))
	for _, r := range c.rules {
		if t.place.Tap != "" && r.verdict == verdictAccept {
			r.verdict = "goto begin" + c.name[strings.LastIndexByte(c.name, '/'):] // names end with the direction
		}
		if c.accept != "" && r.verdict == verdictAccept {
			r.verdict = c.accept
		}
		out = append(out, r.textIn(t.place.Family()))
	}
	return out
}

// setLink sets the verdict for an interface in a map; empty: none.
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

func (t *table) entry(self []netip.Addr) entry {
	return entry{t.place, t.maps, &t.dropped, t.ported, t.host, self}
}

// full returns the complete table; false if it is empty.
func (t *table) full(self []netip.Addr) (state.Table, bool) {
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
	out.Sets = slices.Concat(out.Sets, t.dropped.sets(), in.selfSets())
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
	out := s.definition()
	if s.live == nil {
		out.Elements = s.staticElements()
		return out
	}
	for _, e := range t.groups.elements(s.live) {
		if s.matchesFamily(e) {
			out.Elements = append(out.Elements, s.element(e))
		}
	}
	return out
}
