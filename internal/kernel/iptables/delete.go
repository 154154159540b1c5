// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"context"
	"fmt"
	"slices"

	"github.com/weft-net/weft/internal/state"
)

// Choice is what to delete from a table.
type Choice struct {
	// Chains are deleted, with every rule that jumps to them.
	Chains []string
	// Rules are single rules of chains that stay, by their index.
	Rules map[string][]int
}

// Delete deletes what choose selects of a table, as one transaction. When another process changes the table meanwhile, it
// is read and choose called again.
func (c *Conn) Delete(ctx context.Context, t state.IPTables, choose func(*Table) Choice) error {
	w := &wanted{IPTables: t}
	err := c.changeOne(ctx, w, func(_ context.Context, _ *wanted, have *Table) (*script, error) {
		return have.without(choose(have)), nil
	})
	if err != nil {
		return fmt.Errorf("%s: %w", t, err)
	}
	return nil
}

func (t *Table) without(choice Choice) *script {
	s := &script{}
	for _, chain := range t.Chains {
		if slices.Contains(choice.Chains, chain.Name) {
			continue
		}
		for i, r := range chain.Rules {
			if slices.Contains(choice.Rules[chain.Name], i) || slices.Contains(choice.Chains, leadsTo(r.Words)) {
				s.rule("-D " + chain.Name + " " + r.Text)
			}
		}
	}
	for _, verb := range []string{"-F ", "-X "} { // the chains may jump to each other
		for _, name := range choice.Chains {
			if t.Chain(name) != nil {
				s.rule(verb + name)
			}
		}
	}
	return s
}

// LeadingTo returns the rules that jump to a chain.
func (t *Table) LeadingTo(name string) []Rule {
	var out []Rule
	for _, chain := range t.Chains {
		for _, r := range chain.Rules {
			if leadsTo(r.Words) == name {
				out = append(out, r)
			}
		}
	}
	return out
}

// Comments returns the comments of a rule.
func (r Rule) Comments() []string {
	var out []string
	for i, w := range r.Words {
		if w == "--comment" && i+1 < len(r.Words) {
			out = append(out, r.Words[i+1])
		}
	}
	return out
}
