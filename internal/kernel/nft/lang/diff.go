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
		w, h := w, have[i]
		// The rest may refer to chains that were left out: then it cannot be compiled, and only the complete tables can
		// be normalized.
		if fewer, fewerHave := differingChains(w, h); compiles(fewer) && compiles(fewerHave) {
			w, h = fewer, fewerHave
		}
		d := tableDiff{label: label, want: facts(w), have: facts(h), shared: w.Shared}
		out = append(out, d.differences()...)
	}
	return out
}

func compiles(t state.Table) bool {
	_, err := CompileTable(t)
	return err == nil
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
	for _, w := range d.want {
		i := slices.IndexFunc(d.have, func(h fact) bool { return h.about == w.about })
		switch {
		case i < 0:
			out = append(out, state.Difference{Want: d.label + ": " + w.String()})
		case d.have[i].says != w.says:
			out = append(out, state.Difference{Want: d.label + ": " + w.String(), Have: d.have[i].String()})
		}
	}
	for _, h := range d.have {
		if d.shared && !h.inChain(d.want) {
			continue
		}
		if !slices.ContainsFunc(d.want, func(w fact) bool { return h.about == w.about }) {
			out = append(out, state.Difference{Want: d.label + ": no " + h.about, Have: h.String()})
		}
	}
	return out
}

// inChain reports whether the line is a rule of a chain that want names: no foreign rule belongs there.
func (l fact) inChain(want []fact) bool {
	chainName, _, isRule := strings.Cut(l.about, " rule ")
	return isRule && slices.ContainsFunc(want, func(w fact) bool { return w.about == chainName })
}

func (l fact) String() string { return strings.TrimSpace(l.about + " " + l.says) }

// facts lists the properties of a table, in nft's own spelling if the text compiles.
func facts(in state.Table) []fact {
	t, err := CompileTable(in)
	if err == nil {
		in = t.State()
	}
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
