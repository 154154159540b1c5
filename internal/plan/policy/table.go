// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/state"
)

// The name of weft's table of policy.
const (
	TableFamily = "inet"
	TableName   = "weft-policy"
)

// Place is where a table is: in the namespace of the pod, or of the node where there is none.
type Place struct {
	Pod model.PodRef
	// Tap is a link of the pod, a macvtap, whose frames are judged below IP.
	Tap string
	// Device is what of the pod's a virtual machine drives by itself: its table is never written, and that there is one says that it must
	// be cut off.
	Device string
	// Ports are the node's bridges: frames are judged where they come in and go out by ports.
	Ports bool
}

// OnNode tells whether the place is in the node's namespace.
func (p Place) OnNode() bool { return p.Pod == model.PodRef{} }

func (p Place) compare(o Place) int {
	ports := 0
	if p.Ports != o.Ports {
		if ports = -1; p.Ports {
			ports = 1
		}
	}
	return cmp.Or(strings.Compare(p.Pod.Namespace, o.Pod.Namespace), strings.Compare(p.Pod.Name, o.Pod.Name), strings.Compare(p.Pod.UID, o.Pod.UID), strings.Compare(p.Tap, o.Tap), strings.Compare(p.Device, o.Device), ports)
}

// Table is the name of the place's table.
func (p Place) Table() string {
	if p.Tap != "" {
		return tapName(p.Tap)
	}
	return TableName
}

// single tells whether the place is one link's alone, which needs no map.
func (p Place) single() bool { return p.Tap != "" || p.Device != "" }

func (p Place) node() bool { return p == Place{} }

// table is what one place's table holds: what is reached from its endpoints, and nothing else.
type table struct {
	place  Place
	chains map[string]*chain
	sets   map[string]*set
	links  map[string][]*endpoint // by interface; nearly always one
	maps   [2]map[string]string   // by direction: interface to verdict
	cuts   map[Flow]bool          // see Cut

	// What was before, of what was touched since the last Changes; nil and empty for what was not there.
	wasChains map[string]*[]state.NftRule
	wasSets   map[string]*[]state.Element
	wasMaps   [2]map[string]string
	wasCuts   map[Flow]bool
	// base are the base chains, self the sets of the node's addresses, that the last Changes told.
	base []state.Chain
	self []state.Set
}

func newTable(p Place) *table {
	t := &table{
		place: p, chains: map[string]*chain{}, sets: map[string]*set{}, cuts: map[Flow]bool{},
		links: map[string][]*endpoint{}, maps: [2]map[string]string{{}, {}},
	}
	t.forget()
	return t
}

type chain struct {
	*chainSpec
	refs  int
	made  int // Index.settled then
	rules []rule
}

type set struct {
	*setSpec
	refs int
	live *group
}

// useChain makes sure of a chain and of everything that it leads to.
func (x *Index) useChain(t *table, spec *chainSpec) {
	if c := t.chains[spec.name]; c != nil {
		c.refs++
		return
	}
	t.touchChain(spec.name)
	c := &chain{chainSpec: spec, refs: 1}
	t.chains[spec.name] = c
	x.fillChain(t, c)
}

// fillChain writes the chain's rules anew.
func (x *Index) fillChain(t *table, c *chain) {
	was := c.rules
	c.rules, c.made = c.make(), x.settled
	for _, r := range c.rules {
		for _, s := range r.sets() {
			x.useSet(t, s)
		}
		if r.to != nil {
			x.useChain(t, r.to)
		}
	}
	x.dropRules(t, was)
}

func (x *Index) dropRules(t *table, rules []rule) {
	for _, r := range rules {
		for _, s := range r.sets() {
			x.dropSet(t, s.name)
		}
		if r.to != nil {
			x.dropChain(t, r.to.name)
		}
	}
}

// dropChain gives up one use of a chain, which goes with its last.
func (x *Index) dropChain(t *table, name string) {
	c := t.chains[name]
	if c.refs--; c.refs > 0 {
		return
	}
	t.touchChain(name)
	delete(t.chains, name)
	x.dropRules(t, c.rules)
}

func (x *Index) useSet(t *table, spec *setSpec) {
	s := t.sets[spec.name]
	if s == nil {
		t.touchSet(spec.name)
		s = &set{setSpec: spec}
		if spec.group != nil {
			s.live = x.useGroup(spec.group)
		}
		t.sets[spec.name] = s
	} else if spec.group == nil && s.setSpec != spec {
		t.touchSet(spec.name)
		s.setSpec = spec // the blocks of a policy that has changed
	}
	s.refs++
}

func (x *Index) dropSet(t *table, name string) {
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
	if _, done := t.wasChains[name]; done {
		return
	}
	t.wasChains[name] = nil
	if c := t.chains[name]; c != nil {
		rules := t.texts(c)
		t.wasChains[name] = &rules
	}
}

// touchSet remembers what a set was; of a group's only that it was there.
func (t *table) touchSet(name string) {
	if _, done := t.wasSets[name]; done {
		return
	}
	t.wasSets[name] = nil
	if s := t.sets[name]; s != nil {
		fixed := s.fixed()
		t.wasSets[name] = &fixed
	}
}

// texts are a chain's rules as they are written into the table. What is allowed to begin at a tap is remembered before it passes.
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

// relink has the maps say what is right for an interface.
func (t *table) relink(link string) {
	for _, dir := range directions() {
		was, is := t.maps[dir][link], ""
		if best := chosen(t.links[link]); best != nil && best.chains[dir] != nil {
			is = "goto " + best.chains[dir].name
		}
		if was == is {
			continue
		}
		if _, done := t.wasMaps[dir][link]; !done {
			t.wasMaps[dir][link] = was
		}
		if t.maps[dir][link] = is; is == "" {
			delete(t.maps[dir], link)
		}
	}
}

// chosen is the endpoint that the interface is, where several claim it: the one of the pod that is there now.
func chosen(es []*endpoint) *endpoint {
	var best *endpoint
	for _, e := range es {
		if best == nil || e.before(best) {
			best = e
		}
	}
	return best
}

// whole is the table as a value; false when there is nothing in it.
func (x *Index) whole(t *table) (state.Table, bool) {
	out := state.Table{Family: t.place.Family(), Name: t.place.Table(), Chains: x.baseChains(t)}
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
	out.Sets = slices.Concat(out.Sets, t.cutSets(), x.selfSets(t))
	for _, name := range slices.Sorted(maps.Keys(t.sets)) {
		out.Sets = append(out.Sets, x.fullSet(t.sets[name]))
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

func (x *Index) fullSet(s *set) state.Set {
	out := s.head()
	if s.live == nil {
		out.Elements = s.fixed()
		return out
	}
	for _, e := range x.elements(s.live) {
		if s.takes(e) {
			out.Elements = append(out.Elements, s.words(e))
		}
	}
	return out
}
