// SPDX-License-Identifier: Apache-2.0

package nft

import (
	"fmt"
	"slices"
	"strings"

	"github.com/weft-net/weft/internal/state"
)

// Text renders a table exactly as `nft -s list table` prints it (nft 1.0.6): the plan on paper and the kernel's answer
// can be compared as files.
func Text(in state.Table) (string, error) {
	ts, err := compileTables([]state.Table{in})
	if err != nil {
		return "", err
	}
	t := ts[0]
	var b strings.Builder
	fmt.Fprintf(&b, "table %s {\n", t.label())
	for i, s := range t.sets {
		if i > 0 {
			b.WriteByte('\n')
		}
		s.print(&b)
	}
	for i, c := range t.chains {
		if i > 0 || len(t.sets) > 0 {
			b.WriteByte('\n')
		}
		c.print(&b, t.family)
	}
	b.WriteString("}\n")
	return b.String(), nil
}

func (s set) print(b *strings.Builder) {
	kind, typ := "set", typesString(s.key)
	if s.isMap {
		kind, typ = "map", typ+" : "+s.head().Data
	}
	fmt.Fprintf(b, "\t%s %s {\n\t\ttype %s\n", kind, s.name, typ)
	if s.interval {
		b.WriteString("\t\tflags interval\n")
	}
	if s.learns > 0 {
		fmt.Fprintf(b, "\t\tsize %d\n\t\tflags dynamic,timeout\n", s.learns)
	}
	if len(s.elems) > 0 {
		b.WriteString("\t\telements = { ")
		perLine := 1
		if len(s.key) == 1 {
			perLine = max(1, s.key[0].wrap)
		}
		for i, e := range s.listed() {
			switch {
			case i == 0:
			case i%perLine == 0:
				b.WriteString(",\n\t\t\t     ")
			default:
				b.WriteString(", ")
			}
			b.WriteString(elementText(s.words(e)))
		}
		b.WriteString(" }\n")
	}
	b.WriteString("\t}\n")
}

// listed gives the elements in nft's order: it compares numbers of the machine's byte order, and concatenations, from
// their last byte on, and leaves concatenations of ranges as they were made.
func (s set) listed() []elem {
	if len(s.key) == 1 && !s.key[0].host || s.concatRanges() {
		return s.elems
	}
	return slices.SortedStableFunc(slices.Values(s.elems), func(a, b elem) int {
		for i := len(a.lo) - 1; i >= 0; i-- {
			if a.lo[i] != b.lo[i] {
				return int(a.lo[i]) - int(b.lo[i])
			}
		}
		return 0
	})
}

func elementText(e state.Element) string {
	text := strings.Join(e.Key, " . ")
	if e.Keeps != "" {
		text += " " + e.Keeps
	}
	if e.Comment != "" {
		text += fmt.Sprintf(" comment %q", e.Comment)
	}
	if len(e.Val) > 0 {
		text += " : " + strings.Join(e.Val, " . ")
	}
	return text
}

func (c chain) print(b *strings.Builder, family byte) {
	fmt.Fprintf(b, "\tchain %s {\n", c.name)
	if c.base() {
		fmt.Fprintf(b, "\t\t%s\n", c.headText(family))
	}
	for _, r := range c.rules {
		fmt.Fprintf(b, "\t\t%s\n", r)
	}
	b.WriteString("\t}\n")
}

func (c chain) headText(family byte) string {
	if !c.base() {
		return ""
	}
	device := ""
	if c.device != "" {
		device = fmt.Sprintf(" device %q", c.device)
	}
	return fmt.Sprintf("type %s hook %s%s priority %s; policy %s;", c.kind, c.hook, device,
		priorityText(family, c.hook, c.prio), c.policy)
}

// String prints the rule as nft does.
func (r rule) String() string {
	if r.comment == "" {
		return r.text
	}
	return fmt.Sprintf("%s comment %q", r.text, r.comment)
}

// state turns a compiled table back into a plan's value.
func (t *Table) state() state.Table {
	out := state.Table{Family: familyName(t.family), Name: t.name, Shared: t.shared}
	for _, s := range t.sets {
		h := s.head()
		for _, e := range s.elems {
			h.Elements = append(h.Elements, s.words(e))
		}
		out.Sets = append(out.Sets, h)
	}
	for _, c := range t.chains {
		h := state.Chain{Name: c.name, Type: c.kind, Hook: c.hook, Priority: int(c.prio), Policy: c.policy, Device: c.device}
		for _, r := range c.rules {
			h.Rules = append(h.Rules, state.NftRule{Text: r.text, Comment: r.comment})
		}
		out.Chains = append(out.Chains, h)
	}
	return out
}
