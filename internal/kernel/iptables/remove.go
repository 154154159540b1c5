// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"context"

	"github.com/weft-net/weft/internal/state"
)

// Remove takes own chains away, with everything that leads to them, and, from shared chains, the rules that are not
// shared. What is not there is no error.
func (c *Conn) Remove(ctx context.Context, tables []state.IPTables) error {
	return c.change(ctx, tables, c.surplus)
}

// surplus is what Remove has to do. A rule that is there several times goes once: the others are somebody else's.
func (c *Conn) surplus(ctx context.Context, w *wanted, have *Table) (*script, error) {
	s, own := &script{}, map[string]bool{}
	for _, want := range w.chains {
		own[want.name] = !want.shared && have.Chain(want.name) != nil
	}
	gone := map[string]map[int]bool{}
	drop := func(name string, i int) {
		if gone[name] == nil {
			gone[name] = map[int]bool{}
		}
		if !gone[name][i] {
			gone[name][i] = true
			s.rule("-D " + name + " " + have.Chain(name).Rules[i].Text)
		}
	}
	for _, found := range have.Chains {
		for i, r := range found.Rules {
			if own[leadsTo(r.Words)] && !own[found.Name] {
				drop(found.Name, i)
			}
		}
	}
	for _, want := range w.chains {
		found := have.Chain(want.name)
		if !want.shared || found == nil {
			continue
		}
		for _, r := range want.rules {
			i := found.find(r.words)
			switch {
			case r.Shared || own[leadsTo(r.words)]:
			case i >= 0:
				drop(want.name, i)
			case r.Loose:
				if err := c.dropLoose(ctx, w, want.name, r, s); err != nil {
					return nil, err
				}
			}
		}
	}
	for _, verb := range []string{"-F ", "-X "} { // own chains may lead to each other
		for _, want := range w.chains {
			if own[want.name] {
				s.rule(verb + want.name)
			}
		}
	}
	return s, nil
}

// dropLoose has a rule deleted that iptables-save prints in other words.
func (c *Conn) dropLoose(ctx context.Context, w *wanted, name string, r rule, s *script) error {
	there, err := c.has(ctx, w.IPTables, name, r.words)
	if there {
		s.rule("-D " + name + " " + r.Text)
	}
	return err
}
