// SPDX-License-Identifier: Apache-2.0

package lang

import (
	"fmt"
	"slices"
	"strings"

	"github.com/weft-net/weft/internal/state"
)

// Text renders a table exactly as `nft -s list table` prints it (nft 1.0.6): a plan and the kernel's state can be
// compared as files.
func Text(in state.Table) (string, error) {
	ts, err := Compile([]state.Table{in})
	if err != nil {
		return "", err
	}
	t := ts[0]
	var b strings.Builder
	fmt.Fprintf(&b, "table %s {\n", t.Label())
	for i, f := range t.Flowtables {
		if i > 0 {
			b.WriteByte('\n')
		}
		b.WriteString(flowtableText(f))
	}
	if len(t.Flowtables) > 0 && len(t.Sets) > 0 {
		b.WriteByte('\n')
	}
	for i, s := range t.Sets {
		if i > 0 {
			b.WriteByte('\n')
		}
		s.print(&b)
	}
	for i, c := range t.Chains {
		if i > 0 || len(t.Sets)+len(t.Flowtables) > 0 {
			b.WriteByte('\n')
		}
		c.print(&b, t.Family)
	}
	b.WriteString("}\n")
	return b.String(), nil
}

func (s Set) print(b *strings.Builder) {
	kind, typ := "set", typesString(s.Key)
	if s.IsMap {
		kind, typ = "map", typ+" : "+s.head().Data
	}
	fmt.Fprintf(b, "\t%s %s {\n\t\ttype %s\n", kind, s.Name, typ)
	if s.Interval {
		b.WriteString("\t\tflags interval\n")
	}
	if s.DynamicSize > 0 {
		fmt.Fprintf(b, "\t\tsize %d\n\t\tflags dynamic,timeout\n", s.DynamicSize)
	}
	if len(s.Elements) > 0 {
		b.WriteString("\t\telements = { ")
		perLine := 1
		if len(s.Key) == 1 {
			perLine = max(1, s.Key[0].wrap)
		}
		for i, e := range s.printOrder() {
			switch {
			case i == 0:
			case i%perLine == 0:
				b.WriteString(",\n\t\t\t     ")
			default:
				b.WriteString(", ")
			}
			b.WriteString(elementText(s.State(e)))
		}
		b.WriteString(" }\n")
	}
	b.WriteString("\t}\n")
}

// printOrder returns the elements in nft's order: it compares numbers in host byte order, and concatenations, from
// their last byte on, and does not sort concatenations of ranges.
func (s Set) printOrder() []Element {
	if len(s.Key) == 1 && !s.Key[0].HostOrder || s.ConcatRanges() {
		return s.Elements
	}
	return slices.SortedStableFunc(slices.Values(s.Elements), func(a, b Element) int {
		for i := len(a.Key) - 1; i >= 0; i-- {
			if a.Key[i] != b.Key[i] {
				return int(a.Key[i]) - int(b.Key[i])
			}
		}
		return 0
	})
}

func elementText(e state.Element) string {
	text := strings.Join(e.Key, " . ")
	if e.Stateful != "" {
		text += " " + e.Stateful
	}
	if e.Comment != "" {
		text += fmt.Sprintf(" comment %q", e.Comment)
	}
	if len(e.Val) > 0 {
		text += " : " + strings.Join(e.Val, " . ")
	}
	return text
}

func (c Chain) print(b *strings.Builder, family byte) {
	fmt.Fprintf(b, "\tchain %s {\n", c.Name)
	if c.Base() {
		fmt.Fprintf(b, "\t\t%s\n", c.headText(family))
	}
	for _, r := range c.Rules {
		fmt.Fprintf(b, "\t\t%s\n", r)
	}
	b.WriteString("\t}\n")
}

func (c Chain) headText(family byte) string {
	if !c.Base() {
		return ""
	}
	device := ""
	if c.Device != "" {
		device = fmt.Sprintf(" device %q", c.Device)
	}
	return fmt.Sprintf("type %s hook %s%s priority %s; policy %s;", c.Type, c.Hook, device,
		priorityText(family, c.Hook, c.Priority), c.Policy)
}

// String prints the rule as nft does.
func (r Rule) String() string {
	if r.Comment == "" {
		return r.Text
	}
	return fmt.Sprintf("%s comment %q", r.Text, r.Comment)
}

// State converts a compiled table back into a plan's value.
func (t *Table) State() state.Table {
	out := state.Table{
		Family: FamilyName(t.Family), Name: t.Name, Shared: t.Shared, Flowtables: t.Flowtables, Volatile: t.Volatile,
	}
	for _, s := range t.Sets {
		h := s.head()
		for _, e := range s.Elements {
			h.Elements = append(h.Elements, s.State(e))
		}
		out.Sets = append(out.Sets, h)
	}
	for _, c := range t.Chains {
		h := state.Chain{
			Name: c.Name, Type: c.Type, Hook: c.Hook, Priority: int(c.Priority), Policy: c.Policy, Device: c.Device,
		}
		for _, r := range c.Rules {
			h.Rules = append(h.Rules, state.NftRule{Text: r.Text, Comment: r.Comment})
		}
		out.Chains = append(out.Chains, h)
	}
	return out
}
