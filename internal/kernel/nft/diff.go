// SPDX-License-Identifier: Apache-2.0

package nft

import (
	"fmt"
	"slices"
	"strings"

	"github.com/weft-net/weft/internal/state"
)

// Diff says where have differs from want. What is more in a whole table is a difference too; a shared table is only
// asked for what want names. The differences' Space is left to the caller.
func Diff(want, have []state.Table) []state.Difference {
	var out []state.Difference
	for _, w := range joinTables(want) {
		label := fmt.Sprintf("nft table %s %s", w.Family, w.Name)
		i := slices.IndexFunc(have, func(h state.Table) bool { return h.Family == w.Family && h.Name == w.Name })
		if i < 0 {
			out = append(out, state.Difference{Want: label})
			continue
		}
		w, h := w, have[i]
		// What is left may name chains that are not: then it cannot be compiled, and only all of it can be brought into one spelling.
		if fewer, fewerHave := unequal(w, h); compiles(fewer) && compiles(fewerHave) {
			w, h = fewer, fewerHave
		}
		d := differ{label: label, want: lines(w), have: lines(h), shared: w.Shared}
		out = append(out, d.differences()...)
	}
	return out
}

func compiles(t state.Table) bool {
	_, err := compileTable(t)
	return err == nil
}

// unequal leaves out the chains that are the same in both, to the letter.
func unequal(want, have state.Table) (state.Table, state.Table) {
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
	return a.Name == b.Name && a.Type == b.Type && a.Hook == b.Hook && a.Priority == b.Priority && a.Policy == b.Policy && a.Device == b.Device &&
		slices.Equal(a.Rules, b.Rules)
}

// line is one fact of a table: what it is about and what it says.
type line struct {
	about, says string
}

type differ struct {
	label      string
	want, have []line
	shared     bool
}

func (d differ) differences() []state.Difference {
	var out []state.Difference
	for _, w := range d.want {
		i := slices.IndexFunc(d.have, func(h line) bool { return h.about == w.about })
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
		if !slices.ContainsFunc(d.want, func(w line) bool { return h.about == w.about }) {
			out = append(out, state.Difference{Want: d.label + ": no " + h.about, Have: h.String()})
		}
	}
	return out
}

// inChain tells whether the line is a rule of a chain that want names: no foreign rule belongs there.
func (l line) inChain(want []line) bool {
	chainName, _, isRule := strings.Cut(l.about, " rule ")
	return isRule && slices.ContainsFunc(want, func(w line) bool { return w.about == chainName })
}

func (l line) String() string { return strings.TrimSpace(l.about + " " + l.says) }

// lines takes a table apart. Words are brought into nft's own spelling where they are understood.
func lines(in state.Table) []line {
	t, err := compileTable(in)
	if err == nil {
		in = t.state()
	}
	var out []line
	for _, s := range in.Sets {
		kind := "type " + s.Key
		if s.Data != "" {
			kind += " : " + s.Data
		}
		if s.Interval {
			kind += " flags interval"
		}
		if s.Learns > 0 {
			kind += fmt.Sprintf(" size %d flags dynamic,timeout", s.Learns)
		}
		out = append(out, line{about: "set " + s.Name, says: kind})
		for _, e := range s.Elements {
			about := fmt.Sprintf("set %s element %s", s.Name, strings.Join(e.Key, " . "))
			out = append(out, line{about: about, says: strings.TrimSpace(e.Keeps + " " + strings.Join(e.Val, " . "))})
		}
	}
	for _, c := range in.Chains {
		head := ""
		if c.Hook != "" {
			head = fmt.Sprintf("type %s hook %s priority %d policy %s device %q", c.Type, c.Hook, c.Priority, c.Policy, c.Device)
		}
		out = append(out, line{about: "chain " + c.Name, says: head})
		for i, r := range c.Rules {
			about := fmt.Sprintf("chain %s rule %d", c.Name, i+1)
			out = append(out, line{about: about, says: rule{text: r.Text, comment: r.Comment}.String()})
		}
	}
	return out
}
