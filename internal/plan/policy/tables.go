// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/state"
)

// tables are the tables of all places.
type tables struct {
	groups *groups
	all    map[EnforcementPoint]*table
	self   []netip.Addr             // the node's own addresses, sorted
	stale  map[model.PolicyKey]bool // policies that have changed since the last update
}

func newTables(gs *groups) *tables {
	return &tables{groups: gs, all: map[EnforcementPoint]*table{}, stale: map[model.PolicyKey]bool{}}
}

// at returns the table of a place, and creates it if it is new.
func (ts *tables) at(p EnforcementPoint) *table {
	t := ts.all[p]
	if t == nil {
		t = newTable(p, ts.groups)
		ts.all[p] = t
	}
	return t
}

// begin starts a round: refresh does not recompile chains that are compiled from now on.
func (ts *tables) begin() {
	for _, t := range ts.all {
		t.round++
	}
}

// refresh recompiles the chains of changed policies.
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

func (ts *tables) places() []EnforcementPoint {
	return slices.SortedFunc(maps.Keys(ts.all), EnforcementPoint.compare)
}

// Table is the table of a place.
type Table struct {
	Point EnforcementPoint
	state.Table
}

// full returns all complete tables, or those of some places.
func (ts *tables) full(only ...EnforcementPoint) []Table {
	if len(only) == 0 {
		only = ts.places()
	}
	ts.setPorted()
	var out []Table
	for _, p := range only {
		if ts.all[p] == nil {
			continue
		}
		if t, ok := ts.all[p].full(ts.self); ok {
			out = append(out, Table{p, t})
		}
	}
	return out
}

// changes returns the changes since its last call; unused tables are deleted.
func (ts *tables) changes() []Change {
	ts.setPorted()
	var out []Change
	for _, p := range ts.places() {
		t := ts.all[p]
		if c, any := t.change(ts.self); any {
			out = append(out, c)
		}
		t.forget()
		if t.users == 0 && len(t.dropped.now) == 0 {
			delete(ts.all, p)
		}
	}
	return out
}

// setPorted says in the node's table whether policies are enforced at ports.
func (ts *tables) setPorted() {
	if node := ts.all[EnforcementPoint{}]; node != nil {
		ports := ts.all[EnforcementPoint{Ports: true}]
		node.ported = ports != nil && len(ports.maps[ingress])+len(ports.maps[egress]) > 0
	}
}

func (ts *tables) denials(p EnforcementPoint) map[string]Denial {
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

// setDropped starts or stops to drop the replies of a connection.
func (ts *tables) setDropped(p EnforcementPoint, f Flow, is bool) {
	r := droppedFlow{f.reply(), p.Ports || p.Tap != ""}
	if p.OnNode() {
		p = EnforcementPoint{} // its chains see what passes at ports, too
	}
	if is || ts.all[p] != nil {
		ts.at(p).dropped.set(r, is)
	}
}
