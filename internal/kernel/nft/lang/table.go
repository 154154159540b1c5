// SPDX-License-Identifier: Apache-2.0

package lang

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/state"
)

// Table is a compiled table.
type Table struct {
	Family byte
	Name   string
	Shared bool
	open   bool // a part of a table, which may refer to its other parts
	Sets   []Set
	Chains []Chain
	// Flowtables and Volatile are those of state.Table.
	Flowtables []state.Flowtable
	Volatile   bool
}

// Chain is a compiled chain; as read from the kernel its rules have handles.
type Chain struct {
	Name     string
	Type     string
	Hook     string
	Priority int32
	Policy   string
	Device   string
	Rules    []Rule
	Source   state.Chain // as in the plan
}

// Rule is a compiled rule. Text is in nft's own spelling.
type Rule struct {
	Text, Comment string
	Exprs         []Expr
	Handle        uint64
}

// Same reports whether two rules are equal. A foreign rule equals none.
func (r Rule) Same(o Rule) bool {
	return r.Text == o.Text && r.Comment == o.Comment && r.Text != ForeignRule
}

// Base reports whether the chain has a hook.
func (c Chain) Base() bool { return c.Hook != "" }

// SameHead reports whether two chains differ only in policy and rules.
func (c Chain) SameHead(o Chain) bool {
	return c.Type == o.Type && c.Hook == o.Hook && c.Priority == o.Priority && c.Device == o.Device
}

// Set returns the set or map of that name, and whether there is one.
func (t *Table) Set(name string) (Set, bool) {
	i := slices.IndexFunc(t.Sets, func(s Set) bool { return s.Name == name })
	if i < 0 {
		return Set{}, false
	}
	return t.Sets[i], true
}

// Chain returns the chain of that name, and whether there is one.
func (t *Table) Chain(name string) (Chain, bool) {
	i := slices.IndexFunc(t.Chains, func(c Chain) bool { return c.Name == name })
	if i < 0 {
		return Chain{}, false
	}
	return t.Chains[i], true
}

// HasChain reports whether there is a chain of that name.
func (t *Table) HasChain(name string) bool {
	_, ok := t.Chain(name)
	return ok
}

// Label returns the table's name as nft prints it.
func (t *Table) Label() string { return FamilyName(t.Family) + " " + t.Name }

// Validate compiles the tables and returns the errors.
func Validate(tables []state.Table) error {
	_, err := Compile(tables)
	return err
}

// Compile compiles tables; values that name the same table are joined into one.
func Compile(in []state.Table) ([]*Table, error) {
	var out []*Table
	for _, st := range JoinTables(in) {
		t, err := CompileTable(st)
		if err != nil {
			return nil, fmt.Errorf("table %s %s: %w", st.Family, st.Name, err)
		}
		out = append(out, t)
	}
	return out, nil
}

// JoinTables merges values of the same table: each owner names its own elements, and the same sets and chains.
func JoinTables(in []state.Table) []state.Table {
	var out []state.Table
	for _, t := range in {
		i := slices.IndexFunc(out, func(o state.Table) bool { return o.Family == t.Family && o.Name == t.Name })
		if i < 0 {
			t.Sets, t.Chains = slices.Clone(t.Sets), slices.Clone(t.Chains)
			out = append(out, t)
			continue
		}
		out[i].Shared = out[i].Shared && t.Shared
		for _, s := range t.Sets {
			j := slices.IndexFunc(out[i].Sets, func(o state.Set) bool {
				return o.Name == s.Name && o.Key == s.Key && o.Data == s.Data && o.Interval == s.Interval
			})
			if j < 0 {
				out[i].Sets = append(out[i].Sets, s)
				continue
			}
			out[i].Sets[j].Elements = slices.Concat(out[i].Sets[j].Elements, s.Elements)
			out[i].Sets[j].Owned = out[i].Sets[j].Owned || s.Owned
		}
		for _, c := range t.Chains {
			if !slices.ContainsFunc(out[i].Chains, func(o state.Chain) bool { return reflect.DeepEqual(o, c) }) {
				out[i].Chains = append(out[i].Chains, c)
			}
		}
	}
	return out
}

// CompileTable compiles a whole table: it must contain everything that its rules refer to.
func CompileTable(in state.Table) (*Table, error) { return CompilePart(in, false) }

// CompilePart compiles a table, or with open a part of one.
func CompilePart(in state.Table, open bool) (*Table, error) {
	family, err := ParseFamily(in.Family)
	if err != nil {
		return nil, err
	}
	if err := checkName(in.Name); err != nil {
		return nil, err
	}
	t := &Table{Family: family, Name: in.Name, Shared: in.Shared, open: open, Flowtables: in.Flowtables, Volatile: in.Volatile}
	for _, f := range in.Flowtables {
		if err := checkName(f.Name); err != nil {
			return nil, fmt.Errorf("flowtable: %w", err)
		}
	}
	for _, s := range in.Sets {
		c, err := CompileSet(s)
		if err != nil {
			return nil, fmt.Errorf("set %s: %w", s.Name, err)
		}
		if _, twice := t.Set(s.Name); twice {
			return nil, fmt.Errorf("set %s is listed twice with different types", s.Name)
		}
		t.Sets = append(t.Sets, c)
	}
	// All chains are known before the first rule is compiled: a rule may jump forward.
	for _, c := range in.Chains {
		h, err := compileChain(family, c)
		if err != nil {
			return nil, fmt.Errorf("chain %s: %w", c.Name, err)
		}
		if t.HasChain(c.Name) {
			return nil, fmt.Errorf("chain %s is listed twice with different rules", c.Name)
		}
		t.Chains = append(t.Chains, h)
	}
	for i, c := range in.Chains {
		for _, r := range c.Rules {
			es, err := t.CompileRule(r.Text)
			if err != nil {
				return nil, fmt.Errorf("chain %s: %w", c.Name, err)
			}
			if len(r.Comment) > 127 {
				return nil, fmt.Errorf("chain %s: rule %q: comment of %d bytes, at most 127 fit", c.Name, r.Text, len(r.Comment))
			}
			text := Decompile(family, es)
			t.Chains[i].Rules = append(t.Chains[i].Rules, Rule{Text: text, Comment: r.Comment, Exprs: es})
		}
	}
	return t, t.checkVerdicts()
}

// checkVerdicts checks that the chains which elements jump to exist.
func (t *Table) checkVerdicts() error {
	for _, s := range t.Sets {
		for _, e := range s.Elements {
			if e.Verdict != nil && e.Verdict.Chain != "" && !t.Shared && !t.open && !t.HasChain(e.Verdict.Chain) {
				return fmt.Errorf("map %s: element %v: no chain %q in this table", s.Name, s.State(e).Key, e.Verdict.Chain)
			}
		}
	}
	return nil
}

func compileChain(family byte, in state.Chain) (Chain, error) {
	c := Chain{
		Name: in.Name, Type: in.Type, Hook: in.Hook, Priority: int32(in.Priority), Policy: in.Policy,
		Device: in.Device, Source: in,
	}
	if err := checkName(in.Name); err != nil {
		return c, err
	}
	if !c.Base() {
		if in.Type != "" || in.Policy != "" || in.Priority != 0 || in.Device != "" {
			return c, errors.New("type, priority, policy and device need a hook")
		}
		return c, nil
	}
	if _, err := HookNumber(family, in.Hook); err != nil {
		return c, err
	}
	if int(c.Priority) != in.Priority {
		return c, fmt.Errorf("priority %d: want %d to %d", in.Priority, math.MinInt32, math.MaxInt32)
	}
	if c.Type == "" {
		c.Type = "filter"
	}
	if !slices.Contains([]string{"filter", "nat", "route"}, c.Type) {
		return c, fmt.Errorf("type %q: want filter, nat or route", c.Type)
	}
	if c.Policy == "" {
		c.Policy = "accept"
	}
	if c.Policy != "accept" && c.Policy != "drop" {
		return c, fmt.Errorf("policy %q: want accept or drop", c.Policy)
	}
	return c, nil
}

func checkName(name string) error {
	if name == "" || len(name) > 255 || strings.ContainsFunc(name, func(r rune) bool {
		return !strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./\\", r)
	}) {
		return fmt.Errorf("name %q: want 1 to 255 letters, digits, _ - . /", name)
	}
	return nil
}

// familyWord is a family's name and number.
type familyWord struct {
	name string
	n    byte
}

func families() []familyWord {
	return []familyWord{
		{"ip", unix.NFPROTO_IPV4},
		{"ip6", unix.NFPROTO_IPV6},
		{"inet", unix.NFPROTO_INET},
		{"arp", unix.NFPROTO_ARP},
		{"bridge", unix.NFPROTO_BRIDGE},
		{"netdev", unix.NFPROTO_NETDEV},
	}
}

// ParseFamily returns the kernel's number (NFPROTO_…) of a family.
func ParseFamily(name string) (byte, error) {
	for _, f := range families() {
		if f.name == name {
			return f.n, nil
		}
	}
	return 0, fmt.Errorf("family %q: want ip, ip6, inet, arp, bridge or netdev", name)
}

// FamilyName is the inverse of ParseFamily; an unknown number becomes familyN.
func FamilyName(n byte) string {
	for _, f := range families() {
		if f.n == n {
			return f.name
		}
	}
	return fmt.Sprintf("family%d", n)
}
