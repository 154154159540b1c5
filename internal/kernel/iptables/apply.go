// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/weft-net/weft/internal/state"
)

// tries bounds how often a change is tried again because another process changed the table meanwhile.
const tries = 6

// rule is a wanted rule with its words.
type rule struct {
	state.IPRule
	words []string
}

type chain struct {
	name   string
	shared bool
	rules  []rule
}

// wanted is everything that is wanted of one table.
type wanted struct {
	state.IPTables
	chains []chain
}

// group merges values of the same table, and parses their rules.
func group(tables []state.IPTables) ([]*wanted, error) {
	var out []*wanted
	for _, t := range tables {
		i := slices.IndexFunc(out, func(w *wanted) bool {
			return w.IPv6 == t.IPv6 && w.Table == t.Table && w.Legacy == t.Legacy && w.NFT == t.NFT
		})
		if i < 0 {
			i = len(out)
			out = append(out, &wanted{IPTables: state.IPTables{IPv6: t.IPv6, Table: t.Table, Legacy: t.Legacy, NFT: t.NFT}})
		}
		for _, c := range t.Chains {
			w := chain{name: c.Name, shared: c.Shared}
			for _, r := range c.Rules {
				words, err := Words(r.Text)
				if err != nil {
					return nil, fmt.Errorf("%s: chain %s: rule %q: %w", t, c.Name, r.Text, err)
				}
				w.rules = append(w.rules, rule{r, words})
			}
			out[i].add(w)
		}
	}
	return out, nil
}

// add merges shared chains that are named twice, and their shared rules.
func (w *wanted) add(c chain) {
	i := slices.IndexFunc(w.chains, func(have chain) bool { return have.name == c.name && have.shared && c.shared })
	if i < 0 {
		i = len(w.chains)
		w.chains = append(w.chains, chain{name: c.name, shared: c.shared})
	}
	for _, r := range c.rules {
		same := func(o rule) bool { return slices.Equal(o.words, r.words) }
		if !c.shared || !slices.ContainsFunc(w.chains[i].rules, same) {
			w.chains[i].rules = append(w.chains[i].rules, r)
		}
	}
}

// Apply makes the tables contain the named chains and rules. Each table is one transaction; if nothing differs, only
// iptables-save is executed.
func (c *Conn) Apply(ctx context.Context, tables []state.IPTables) error {
	return c.change(ctx, tables, c.missing)
}

// change changes each table until plan returns nothing to do.
func (c *Conn) change(
	ctx context.Context, tables []state.IPTables, plan func(context.Context, *wanted, *Table) (*script, error),
) error {
	groups, err := group(tables)
	if err != nil || len(groups) == 0 {
		return err
	}
	var errs []error
	for _, w := range groups {
		if err := c.changeOne(ctx, w, plan); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", w, err))
		}
	}
	return errors.Join(errs...)
}

// changeOne changes one table. It takes the namespace's lock only before adding objects that other processes may add,
// too, which happens once or twice in a node's lifetime.
func (c *Conn) changeOne(
	ctx context.Context, w *wanted, plan func(context.Context, *wanted, *Table) (*script, error),
) error {
	var refused error
	locked := false
	for range tries {
		have, err := c.Save(ctx, w.IPTables)
		if err != nil {
			return err
		}
		s, err := plan(ctx, w, have)
		if err != nil || s.empty() {
			return err
		}
		if s.shares && !locked {
			locked = true
			release := c.lockNamespace(ctx)
			defer release()
			continue
		}
		_, refused = c.run(ctx, s.text(w.Table), c.program(w.IPTables, "-restore"), "--noflush", "-w", "5")
		var f *failure
		if !errors.As(refused, &f) {
			return refused
		}
	}
	return refused
}

// missing returns what Apply has to do.
func (c *Conn) missing(ctx context.Context, w *wanted, have *Table) (*script, error) {
	s := &script{}
	for _, want := range w.chains {
		found := have.Chain(want.name)
		if !want.shared {
			if found == nil || !same(want, found) {
				s.rewriteChain(want)
			}
			continue
		}
		if found == nil && !builtin(want.name) {
			s.chain("-N " + want.name)
			s.shares = true
		}
		var first []string
		for _, r := range want.rules {
			there, err := c.there(ctx, w, want.name, found, r)
			if err != nil {
				return nil, err
			}
			switch {
			case there:
				continue
			case r.First:
				first = append(first, "-I "+want.name+" 1 "+r.Text)
			default:
				s.rule("-A " + want.name + " " + r.Text)
			}
			s.shares = s.shares || r.Shared
		}
		slices.Reverse(first) // the last rule that is inserted becomes the first one
		for _, line := range first {
			s.rule(line)
		}
	}
	return s, nil
}

// there reports whether a rule is in a shared chain.
func (c *Conn) there(ctx context.Context, w *wanted, name string, found *Chain, r rule) (bool, error) {
	if found == nil {
		return false, nil
	}
	if found.find(r.words) >= 0 {
		return true, nil
	}
	if !r.Loose {
		return false, nil
	}
	return c.has(ctx, w.IPTables, name, r.words)
}

// same reports whether an own chain has exactly its rules. One with a loose rule is re-created.
func same(want chain, found *Chain) bool {
	return slices.EqualFunc(want.rules, found.Rules, func(w rule, f Rule) bool { return slices.Equal(w.words, f.Words) })
}

// builtin reports whether a chain is built in, and therefore always exists.
func builtin(name string) bool {
	return slices.Contains([]string{"PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"}, name)
}

// script is the input of iptables-restore: chains before rules.
type script struct {
	chains, rules []string
	// shares means that it adds objects that other processes might add at the same time.
	shares bool
}

func (s *script) chain(line string) { s.chains = append(s.chains, line) }
func (s *script) rule(line string)  { s.rules = append(s.rules, line) }
func (s *script) empty() bool       { return len(s.chains)+len(s.rules) == 0 }

// rewriteChain creates a chain, or flushes it, and adds its rules.
func (s *script) rewriteChain(c chain) {
	s.chain(":" + c.name + " - [0:0]")
	for _, r := range c.rules {
		s.rule("-A " + c.name + " " + r.Text)
	}
}

func (s *script) text(table string) string {
	lines := slices.Concat([]string{"*" + table}, s.chains, s.rules, []string{"COMMIT", ""})
	return strings.Join(lines, "\n")
}
