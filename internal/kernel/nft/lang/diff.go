// SPDX-License-Identifier: Apache-2.0

package lang

import (
	"fmt"
	"slices"
	"strings"

	"github.com/weft-net/weft/internal/state"
)

// Diff returns the differences between have and want. Additional objects in a whole table are differences, too; a
// shared table is compared only with the objects in want. The caller sets the differences' Space.
func Diff(want, have []state.Table) []state.Difference {
	var out []state.Difference
	for _, w := range JoinTables(want) {
		label := fmt.Sprintf("nft table %s %s", w.Family, w.Name)
		i := slices.IndexFunc(have, func(h state.Table) bool { return h.Family == w.Family && h.Name == w.Name })
		if i < 0 {
			out = append(out, state.Difference{Want: label})
			continue
		}
		out = append(out, diffOf(label, w, have[i]).differences()...)
	}
	return out
}

// diffOf returns the properties of both tables without those that are equal at first sight: of the thousands of
// elements of a large cluster usually all are, and their texts need more memory than the plan.
func diffOf(label string, want, have state.Table) tableDiff {
	w, h := differingChains(want, have)
	// The rest may refer to chains that were left out: then it cannot be compiled, and only the complete tables can.
	for _, pair := range [][2]state.Table{{w, h}, {want, have}} {
		a, err := CompileTable(pair[0])
		b, errHave := CompileTable(pair[1])
		if err == nil && errHave == nil {
			dropEqual(a, b)
			return tableDiff{label: label, want: facts(a.State()), have: facts(b.State()), shared: want.Shared}
		}
	}
	return tableDiff{label: label, want: facts(normalized(want)), have: facts(normalized(have)), shared: want.Shared}
}

// normalized returns a table in nft's own spelling if its text compiles.
func normalized(in state.Table) state.Table {
	t, err := CompileTable(in)
	if err != nil {
		return in
	}
	return t.State()
}

// dropEqual removes the elements that a set has in both tables.
func dropEqual(a, b *Table) {
	for i := range a.Sets {
		j := slices.IndexFunc(b.Sets, func(s Set) bool { return s.SameHead(a.Sets[i]) })
		if j >= 0 {
			DropEqual(&a.Sets[i], &b.Sets[j])
		}
	}
}

// DropEqual removes the elements that both sets have with the same value, and keeps no memory for them. Both are sorted.
func DropEqual(a, b *Set) {
	var onlyA, onlyB []Element
	i, j := 0, 0
	for i < len(a.Elements) && j < len(b.Elements) {
		e, f := a.Elements[i], b.Elements[j]
		c := CompareElements(e, f)
		if c <= 0 {
			i++
		}
		if c >= 0 {
			j++
		}
		equal := c == 0 && e.SameValue(f)
		if c <= 0 && !equal {
			onlyA = append(onlyA, e)
		}
		if c >= 0 && !equal {
			onlyB = append(onlyB, f)
		}
	}
	a.Elements = append(onlyA, a.Elements[i:]...)
	b.Elements = append(onlyB, b.Elements[j:]...)
}

// differingChains leaves out the chains that are literally equal in both.
func differingChains(want, have state.Table) (state.Table, state.Table) {
	in := func(all []state.Chain) func(state.Chain) bool {
		return func(c state.Chain) bool {
			return slices.ContainsFunc(all, func(o state.Chain) bool { return sameChain(c, o) })
		}
	}
	w, h := want, have
	w.Chains = slices.DeleteFunc(slices.Clone(want.Chains), in(have.Chains))
	h.Chains = slices.DeleteFunc(slices.Clone(have.Chains), in(want.Chains))
	return w, h
}

func sameChain(a, b state.Chain) bool {
	return a.Name == b.Name && a.Type == b.Type && a.Hook == b.Hook && a.Priority == b.Priority && a.Policy == b.Policy &&
		a.Device == b.Device &&
		slices.Equal(a.Rules, b.Rules)
}

// fact is one property of a table: its subject and its value.
type fact struct {
	about, says string
}

type tableDiff struct {
	label      string
	want, have []fact
	shared     bool
}

func (d tableDiff) differences() []state.Difference {
	var out []state.Difference
	want, have := byAbout(d.want), byAbout(d.have)
	for _, w := range d.want {
		h, ok := have[w.about]
		switch {
		case !ok:
			out = append(out, state.Difference{Want: d.label + ": " + w.String()})
		case h.says != w.says:
			out = append(out, state.Difference{Want: d.label + ": " + w.String(), Have: h.String()})
		}
	}
	for _, h := range d.have {
		if d.shared && !h.inChain(want) {
			continue
		}
		if _, ok := want[h.about]; !ok {
			out = append(out, state.Difference{Want: d.label + ": no " + h.about, Have: h.String()})
		}
	}
	return out
}

func byAbout(all []fact) map[string]fact {
	out := make(map[string]fact, len(all))
	for _, f := range all {
		out[f.about] = f
	}
	return out
}

// inChain reports whether the line is a rule of a chain that want names: no foreign rule belongs there.
func (l fact) inChain(want map[string]fact) bool {
	chainName, _, isRule := strings.Cut(l.about, " rule ")
	_, named := want[chainName]
	return isRule && named
}

func (l fact) String() string { return strings.TrimSpace(l.about + " " + l.says) }

// facts lists the properties of a table.
func facts(in state.Table) []fact {
	var out []fact
	for _, s := range in.Sets {
		kind := "type " + s.Key
		if s.Data != "" {
			kind += " : " + s.Data
		}
		if s.Interval {
			kind += " flags interval"
		}
		if s.DynamicSize > 0 {
			kind += fmt.Sprintf(" size %d flags dynamic,timeout", s.DynamicSize)
		}
		out = append(out, fact{about: "set " + s.Name, says: kind})
		for _, e := range s.Elements {
			about := fmt.Sprintf("set %s element %s", s.Name, strings.Join(e.Key, " . "))
			out = append(out, fact{about: about, says: strings.TrimSpace(e.Stateful + " " + strings.Join(e.Val, " . "))})
		}
	}
	for _, c := range in.Chains {
		head := ""
		if c.Hook != "" {
			head = fmt.Sprintf("type %s hook %s priority %d policy %s device %q", c.Type, c.Hook, c.Priority, c.Policy, c.Device)
		}
		out = append(out, fact{about: "chain " + c.Name, says: head})
		for i, r := range c.Rules {
			about := fmt.Sprintf("chain %s rule %d", c.Name, i+1)
			out = append(out, fact{about: about, says: Rule{Text: r.Text, Comment: r.Comment}.String()})
		}
	}
	return out
}
