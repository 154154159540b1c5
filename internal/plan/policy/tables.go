// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/state"
)

// tables are those of all places.
type tables struct {
	groups *groups
	all    map[Place]*table
	self   []netip.Addr             // the node's own addresses, sorted
	stale  map[model.PolicyKey]bool // policies that have changed since the tables were settled
}

func newTables(gs *groups) *tables {
	return &tables{groups: gs, all: map[Place]*table{}, stale: map[model.PolicyKey]bool{}}
}

// at is the table of a place, made when it is new.
func (ts *tables) at(p Place) *table {
	t := ts.all[p]
	if t == nil {
		t = newTable(p, ts.groups)
		ts.all[p] = t
	}
	return t
}

// begin has chains that are made from now on count as new to refresh.
func (ts *tables) begin() {
	for _, t := range ts.all {
		t.round++
	}
}

// refresh makes the chains of policies that have changed again.
func (ts *tables) refresh() {
	for _, t := range ts.all {
		for _, c := range t.chains {
			if c.made != t.round && slices.ContainsFunc(c.policies, func(k model.PolicyKey) bool { return ts.stale[k] }) {
				t.touchChain(c.name)
				t.fillChain(c)
			}
		}
	}
	clear(ts.stale)
}

func (ts *tables) places() []Place {
	return slices.SortedFunc(maps.Keys(ts.all), Place.compare)
}

// Table is the table of a place.
type Table struct {
	Place Place
	state.Table
}

// whole are all tables as values, or those of some places.
func (ts *tables) whole(only ...Place) []Table {
	if len(only) == 0 {
		only = ts.places()
	}
	var out []Table
	for _, p := range only {
		if ts.all[p] == nil {
			continue
		}
		if t, ok := ts.all[p].whole(ts.self); ok {
			out = append(out, Table{p, t})
		}
	}
	return out
}

// changes are what separates the tables from what it gave before; those that are nobody's go.
func (ts *tables) changes() []Change {
	var out []Change
	for _, p := range ts.places() {
		t := ts.all[p]
		if c, any := t.change(ts.self); any {
			out = append(out, c)
		}
		t.forget()
		if t.users == 0 && len(t.cuts.now) == 0 {
			delete(ts.all, p)
		}
	}
	return out
}

func (ts *tables) denials(p Place) map[string]Denial {
	out := map[string]Denial{}
	if t := ts.all[p]; t != nil {
		for name, c := range t.chains {
			if c.denies != nil {
				out[name] = *c.denies
			}
		}
	}
	return out
}

// cutting has the replies of a connection be cut, or not any more.
func (ts *tables) cutting(p Place, f Flow, is bool) {
	all := []Place{p}
	if p.OnNode() {
		all = []Place{{}, {Ports: true}}
	}
	for _, p := range all {
		if is || ts.all[p] != nil {
			ts.at(p).cuts.set(f.reply(), is)
		}
	}
}
