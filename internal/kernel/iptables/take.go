// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"context"
	"fmt"
	"slices"

	"github.com/weft-net/weft/internal/state"
)

// Choice is what is to go of a table.
type Choice struct {
	// Chains go whole, with every rule that leads to them.
	Chains []string
	// Rules are single rules of chains that stay, by their number.
	Rules map[string][]int
}

// Take takes away what choose chooses of a table, as one transaction. When somebody changes the table meanwhile, it is
// read and chosen from again.
func (c *Conn) Take(ctx context.Context, t state.IPTables, choose func(*Table) Choice) error {
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
	for _, verb := range []string{"-F ", "-X "} { // the chains may lead to each other
		for _, name := range choice.Chains {
			if t.Chain(name) != nil {
				s.rule(verb + name)
			}
		}
	}
	return s
}

// LeadingTo finds the rules that lead to a chain.
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

// Comments are the comments of a rule.
func (r Rule) Comments() []string {
	var out []string
	for i, w := range r.Words {
		if w == "--comment" && i+1 < len(r.Words) {
			out = append(out, r.Words[i+1])
		}
	}
	return out
}
