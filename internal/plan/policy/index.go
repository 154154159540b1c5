// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/state"
)

// Config is what an Index needs to know beforehand.
type Config struct {
	// Node is this node's name.
	Node string
	// LogGroup is the group of the kernel's packet log that denied packets are told to, with the names of the policies and at
	// most ten in a second for the same ones; 0: to none.
	LogGroup int
	// Apart is how many NetworkPolicies that select one pod have a chain each; more are written together. 0 is a usual number.
	Apart int
}

// Index holds the facts and what was compiled of them. What is said to it costs what it touches; what comes out depends on
// the facts alone, and not on how they came about. It is not safe for several goroutines.
type Index struct {
	cfg       Config
	self      []netip.Addr
	spaces    map[string]*space
	nodes     map[string]*node
	policies  map[model.PolicyKey]*policy
	cluster   []*policy // the ClusterNetworkPolicies, in the order in which they are asked
	endpoints map[model.EndpointKey]*endpoint
	byAddr    map[netip.Addr][]*endpoint
	holders   holders
	groups    map[string]*group
	tables    map[Place]*table

	doubted map[*endpoint]bool
	changed map[model.PolicyKey]bool
	settled int // how often; a chain that was made by the last time says what its policies do
}

// New is an index without facts.
func New(cfg Config) *Index {
	return &Index{
		cfg: cfg, spaces: map[string]*space{}, nodes: map[string]*node{}, policies: map[model.PolicyKey]*policy{},
		endpoints: map[model.EndpointKey]*endpoint{}, byAddr: map[netip.Addr][]*endpoint{}, holders: newHolders(), groups: map[string]*group{},
		tables: map[Place]*table{}, doubted: map[*endpoint]bool{}, changed: map[model.PolicyKey]bool{},
	}
}

// SetPolicy says what a policy is.
func (x *Index) SetPolicy(in model.Policy) {
	p := &policy{Policy: in, subject: compileTerm(in.Subject)}
	x.replace(in.PolicyKey, p)
}

// DelPolicy says that there is no such policy.
func (x *Index) DelPolicy(key model.PolicyKey) {
	if x.policies[key] != nil {
		x.replace(key, nil)
	}
}

// replace has p, which may be nil, be the policy of the name.
func (x *Index) replace(key model.PolicyKey, p *policy) {
	was := x.policies[key]
	delete(x.policies, key)
	if p != nil {
		x.policies[key] = p
	}
	x.changed[key] = true
	list := &x.cluster
	s := x.space(key.Namespace)
	switch key.Kind {
	case model.KindNetworkPolicy:
		list = &s.policies
	case model.KindMultiNetworkPolicy:
		list = &s.multis
	}
	*list = slices.DeleteFunc(*list, func(o *policy) bool { return o == was })
	if p != nil {
		i, _ := slices.BinarySearchFunc(*list, p, (*policy).order)
		*list = slices.Insert(*list, i, p)
	}
	x.dropSpace(s)
	for _, e := range x.endpoints {
		if key.Namespace != "" && e.Pod.Namespace != key.Namespace {
			continue
		}
		if was.mayBeAbout(e) || p.mayBeAbout(e) {
			x.doubt(e)
		}
	}
}

// mayBeAbout tells whether the policy, which may be nil, might select an endpoint, as far as its pod is known.
func (p *policy) mayBeAbout(e *endpoint) bool {
	return p != nil && (e.pod == nil || e.pod.identity == nil || !e.pod.identity.space.known || p.subject.matches(e.pod.identity))
}

// order is that in which cluster-wide policies are asked; others are sorted by it, too. Two of one priority are asked in the
// order of their names: the specification leaves it open, and it should not depend on the weather.
func (p *policy) order(o *policy) int {
	return cmp.Or(strings.Compare(string(p.Tier), string(o.Tier)), cmp.Compare(p.Priority, o.Priority), strings.Compare(p.Name, o.Name))
}

// settle has the tables say what the facts do.
func (x *Index) settle() {
	if len(x.doubted)+len(x.changed) == 0 {
		return
	}
	x.settled++
	for e := range x.doubted {
		x.settleEndpoint(e)
	}
	clear(x.doubted)
	for _, t := range x.tables {
		for _, c := range t.chains {
			if c.made != x.settled && slices.ContainsFunc(c.policies, func(k model.PolicyKey) bool { return x.changed[k] }) {
				t.touchChain(c.name)
				x.fillChain(t, c)
			}
		}
	}
	clear(x.changed)
}

// Table is the table of a place.
type Table struct {
	Place Place
	state.Table
}

// Tables are all tables, whole: the node's first; or those of some places. Where nobody is selected by any policy there is none.
func (x *Index) Tables(only ...Place) []Table {
	x.settle()
	if len(only) == 0 {
		only = x.places()
	}
	var out []Table
	for _, p := range only {
		if x.tables[p] == nil {
			continue
		}
		if t, ok := x.whole(x.tables[p]); ok {
			out = append(out, Table{p, t})
		}
	}
	return out
}

func (x *Index) places() []Place {
	return slices.SortedFunc(maps.Keys(x.tables), Place.compare)
}

// Denials say of the chains of a place's table which of them count denied packets, and whose.
func (x *Index) Denials(p Place) map[string]Denial {
	x.settle()
	out := map[string]Denial{}
	if t := x.tables[p]; t != nil {
		for name, c := range t.chains {
			if c.denies != nil {
				out[name] = *c.denies
			}
		}
	}
	return out
}
