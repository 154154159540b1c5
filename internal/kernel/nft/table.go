// SPDX-License-Identifier: Apache-2.0

package nft

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/state"
)

// Table is a compiled table.
type Table struct {
	family byte
	name   string
	shared bool
	open   bool // a part of a table: what it names may be elsewhere
	sets   []set
	chains []chain
}

// chain is a compiled chain; as read from the kernel its rules have handles.
type chain struct {
	name   string
	kind   string
	hook   string
	prio   int32
	policy string
	device string
	rules  []rule
	given  state.Chain // as the plan said it
}

// rule is a compiled rule. Text is in nft's own spelling, whatever the plan's was.
type rule struct {
	text, comment string
	exprs         []expr
	handle        uint64
}

func (r rule) same(o rule) bool {
	return r.text == o.text && r.comment == o.comment && r.text != foreignRule
}

func (c chain) base() bool { return c.hook != "" }

// sameHead tells whether two chains differ in nothing but policy and rules.
func (c chain) sameHead(o chain) bool {
	return c.kind == o.kind && c.hook == o.hook && c.prio == o.prio && c.device == o.device
}

func (t *Table) set(name string) (set, bool) {
	i := slices.IndexFunc(t.sets, func(s set) bool { return s.name == name })
	if i < 0 {
		return set{}, false
	}
	return t.sets[i], true
}

func (t *Table) chain(name string) (chain, bool) {
	i := slices.IndexFunc(t.chains, func(c chain) bool { return c.name == name })
	if i < 0 {
		return chain{}, false
	}
	return t.chains[i], true
}

func (t *Table) hasChain(name string) bool {
	_, ok := t.chain(name)
	return ok
}

// label names the table as nft does.
func (t *Table) label() string { return familyName(t.family) + " " + t.name }

// Validate compiles all that the tables hold and says what cannot be.
func Validate(tables []state.Table) error {
	_, err := compileTables(tables)
	return err
}

// compileTables compiles tables; values that name the same table are joined into one.
func compileTables(in []state.Table) ([]*Table, error) {
	var out []*Table
	for _, st := range joinTables(in) {
		t, err := compileTable(st)
		if err != nil {
			return nil, fmt.Errorf("table %s %s: %w", st.Family, st.Name, err)
		}
		out = append(out, t)
	}
	return out, nil
}

// joinTables merges values that name one table: owners of a fragment each name their elements, and the same sets and
// chains, of a shared one.
func joinTables(in []state.Table) []state.Table {
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

func compileTable(in state.Table) (*Table, error) { return compilePart(in, false) }

// compilePart compiles a table, or with open a part of one.
func compilePart(in state.Table, open bool) (*Table, error) {
	family, err := familyNamed(in.Family)
	if err != nil {
		return nil, err
	}
	if err := checkName(in.Name); err != nil {
		return nil, err
	}
	t := &Table{family: family, name: in.Name, shared: in.Shared, open: open}
	for _, s := range in.Sets {
		c, err := compileSet(s)
		if err != nil {
			return nil, fmt.Errorf("set %s: %w", s.Name, err)
		}
		if _, twice := t.set(s.Name); twice {
			return nil, fmt.Errorf("set %s stands twice with different types", s.Name)
		}
		t.sets = append(t.sets, c)
	}
	// All chains are known before the first rule is compiled: a rule may jump forward.
	for _, c := range in.Chains {
		h, err := compileHead(family, c)
		if err != nil {
			return nil, fmt.Errorf("chain %s: %w", c.Name, err)
		}
		if t.hasChain(c.Name) {
			return nil, fmt.Errorf("chain %s stands twice with different rules", c.Name)
		}
		t.chains = append(t.chains, h)
	}
	for i, c := range in.Chains {
		for _, r := range c.Rules {
			es, err := t.compileRule(r.Text)
			if err != nil {
				return nil, fmt.Errorf("chain %s: %w", c.Name, err)
			}
			if len(r.Comment) > 127 {
				return nil, fmt.Errorf("chain %s: rule %q: comment of %d bytes, at most 127 fit", c.Name, r.Text, len(r.Comment))
			}
			text := decompile(family, es)
			t.chains[i].rules = append(t.chains[i].rules, rule{text: text, comment: r.Comment, exprs: es})
		}
	}
	return t, t.checkVerdicts()
}

// checkVerdicts makes sure that the chains which elements jump to exist.
func (t *Table) checkVerdicts() error {
	for _, s := range t.sets {
		for _, e := range s.elems {
			if e.verdict != nil && e.verdict.chain != "" && !t.shared && !t.open && !t.hasChain(e.verdict.chain) {
				return fmt.Errorf("map %s: element %v: no chain %q in this table", s.name, s.words(e).Key, e.verdict.chain)
			}
		}
	}
	return nil
}

func compileHead(family byte, in state.Chain) (chain, error) {
	c := chain{name: in.Name, kind: in.Type, hook: in.Hook, prio: int32(in.Priority), policy: in.Policy, device: in.Device, given: in}
	if err := checkName(in.Name); err != nil {
		return c, err
	}
	if !c.base() {
		if in.Type != "" || in.Policy != "" || in.Priority != 0 || in.Device != "" {
			return c, errors.New("type, priority, policy and device need a hook")
		}
		return c, nil
	}
	if _, err := hookNumber(family, in.Hook); err != nil {
		return c, err
	}
	if c.kind == "" {
		c.kind = "filter"
	}
	if !slices.Contains([]string{"filter", "nat", "route"}, c.kind) {
		return c, fmt.Errorf("type %q: want filter, nat or route", c.kind)
	}
	if c.policy == "" {
		c.policy = "accept"
	}
	if c.policy != "accept" && c.policy != "drop" {
		return c, fmt.Errorf("policy %q: want accept or drop", c.policy)
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

func familyNamed(name string) (byte, error) {
	for _, f := range families() {
		if f.name == name {
			return f.n, nil
		}
	}
	return 0, fmt.Errorf("family %q: want ip, ip6, inet, arp, bridge or netdev", name)
}

func familyName(n byte) string {
	for _, f := range families() {
		if f.n == n {
			return f.name
		}
	}
	return fmt.Sprintf("family%d", n)
}
