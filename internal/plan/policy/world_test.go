// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/google/go-cmp/cmp"

	"github.com/weft-net/weft/internal/state"
)

// mirror is what the kernel would have after the applied changes.
type mirror map[EnforcementPoint]*state.Table

// apply does what the driver does, and refuses what the kernel would.
func (m mirror) apply(t fataler, changes []Change) {
	t.Helper()
	for _, c := range changes {
		if c.Gone {
			if m[c.Point] == nil || !c.Empty() {
				t.Fatalf("%v goes, and was not there, or changes, too", c.Point)
			}
			delete(m, c.Point)
			continue
		}
		if (m[c.Point] == nil) != c.Made {
			t.Fatalf("%v is made: %v, and the table is there: %v", c.Point, c.Made, m[c.Point] != nil)
		}
		if c.Made {
			m[c.Point] = &state.Table{Family: c.Family, Name: c.Name}
		}
		applyOne(t, m[c.Point], c.TableChange)
	}
}

func applyOne(t fataler, to *state.Table, c state.TableChange) {
	t.Helper()
	for _, s := range c.AddSets {
		if setIn(to, s.Name) != nil {
			t.Fatalf("set %s is made and there", s.Name)
		}
		s.Elements = slices.Clone(s.Elements)
		to.Sets = append(to.Sets, s)
	}
	for _, ch := range c.AddChains {
		to.Chains = slices.DeleteFunc(to.Chains, func(o state.Chain) bool { return o.Name == ch.Name })
		to.Chains = append(to.Chains, ch)
	}
	for _, d := range c.DeleteElements {
		s := setIn(to, d.Name)
		for _, e := range d.Elements {
			i := elementIn(s, e)
			if i < 0 {
				t.Fatalf("element %v of %s is dropped and not there", e.Key, d.Name)
			}
			s.Elements = slices.Delete(s.Elements, i, i+1)
		}
	}
	for _, a := range c.AddElements {
		s := setIn(to, a.Name)
		for _, e := range a.Elements {
			if elementIn(s, e) >= 0 {
				t.Fatalf("element %v of %s is added and there", e.Key, a.Name)
			}
			s.Elements = append(s.Elements, e)
		}
	}
	for _, name := range c.DeleteChains {
		before := len(to.Chains)
		if to.Chains = slices.DeleteFunc(to.Chains, func(o state.Chain) bool {
			return o.Name == name
		}); len(to.Chains) == before {
			t.Fatalf("chain %s is dropped and not there", name)
		}
	}
	for _, name := range c.DeleteSets {
		before := len(to.Sets)
		if to.Sets = slices.DeleteFunc(to.Sets, func(o state.Set) bool { return o.Name == name }); len(to.Sets) == before {
			t.Fatalf("set %s is dropped and not there", name)
		}
	}
}

func setIn(t *state.Table, name string) *state.Set {
	for i := range t.Sets {
		if t.Sets[i].Name == name {
			return &t.Sets[i]
		}
	}
	return nil
}

func elementIn(s *state.Set, e state.Element) int {
	return slices.IndexFunc(s.Elements, func(o state.Element) bool { return slices.Equal(o.Key, e.Key) })
}

// tables are the mirror in the order of Tables, without what is not compared.
func (m mirror) tables() map[EnforcementPoint]state.Table {
	out := map[EnforcementPoint]state.Table{}
	for p, t := range m {
		out[p] = sorted(*t)
	}
	return out
}

func sorted(t state.Table) state.Table {
	if t.Sets, t.Chains = slices.Clone(t.Sets), slices.Clone(t.Chains); len(t.Sets) == 0 {
		t.Sets = nil // sets that have come and gone are none
	}
	slices.SortFunc(t.Sets, func(a, b state.Set) int { return strings.Compare(a.Name, b.Name) })
	slices.SortFunc(t.Chains, func(a, b state.Chain) int { return strings.Compare(a.Name, b.Name) })
	for i := range t.Sets {
		t.Sets[i].Elements = slices.Clone(t.Sets[i].Elements)
		slices.SortFunc(t.Sets[i].Elements, func(a, b state.Element) int { return slices.Compare(a.Key, b.Key) })
		if len(t.Sets[i].Elements) == 0 {
			t.Sets[i].Elements = nil
		}
	}
	return t
}

func tablesOf(x *Index) map[EnforcementPoint]state.Table {
	out := map[EnforcementPoint]state.Table{}
	for _, t := range x.Tables() {
		out[t.Point] = sorted(t.Table)
	}
	return out
}

// sound fails where a table leads to what it does not have, or has what nothing leads to. Of two endpoints that claim
// one interface both have their chains.
func sound(t fataler, x *Index, place EnforcementPoint, table state.Table) {
	t.Helper()
	used := map[string]bool{}
	for _, e := range x.endpoints.all {
		for _, c := range e.chains {
			if c != nil && e.table.place == place {
				used[c.name] = true
			}
		}
	}
	words := func(text string) {
		fields := strings.Fields(text)
		for i, w := range fields {
			if name, ok := strings.CutPrefix(w, "@"); ok && !strings.Contains(w, ",") { // else it is a part of a packet
				used["@"+name] = true
			}
			if (w == "jump" || w == "goto") && i+1 < len(fields) {
				used[fields[i+1]] = true
			}
		}
	}
	have := map[string]bool{}
	for _, c := range table.Chains {
		have[c.Name] = true
		used[c.Name] = used[c.Name] || c.Hook != ""
		for _, r := range c.Rules {
			words(r.Text)
		}
	}
	for _, s := range table.Sets {
		have["@"+s.Name] = true
		for _, e := range s.Elements {
			words(strings.Join(e.Val, " "))
		}
	}
	if diff := cmp.Diff(used, have); diff != "" {
		t.Fatalf("what is used (-) and what is there (+):\n%s", diff)
	}
}

func addrs(in ...string) []netip.Addr {
	var out []netip.Addr
	for _, s := range in {
		out = append(out, netip.MustParseAddr(s))
	}
	return out
}

// fataler is a test, or rapid's.
type fataler interface {
	Helper()
	Fatalf(format string, args ...any)
}
