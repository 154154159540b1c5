// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"context"
	"slices"

	"github.com/weft-net/weft/internal/state"
)

// Remove deletes own chains, and, from shared chains, the rules that are not shared. Missing objects are no error. An
// own chain stays while a rule that is not named jumps to it: a container with two interfaces of one network has one
// chain for both.
func (c *Conn) Remove(ctx context.Context, tables []state.IPTables) error {
	return c.change(ctx, tables, c.surplus)
}

// surplus returns what Remove has to do. A rule that exists several times is deleted once: the others belong to other
// owners.
func (c *Conn) surplus(ctx context.Context, w *wanted, have *Table) (*script, error) {
	s := &script{}
	own := w.unneeded(have)
	for _, want := range w.chains {
		found := have.Chain(want.name)
		if !want.shared || found == nil {
			continue
		}
		for _, r := range want.rules {
			i := found.find(r.words)
			switch {
			case r.Shared:
			case i >= 0:
				s.rule("-D " + want.name + " " + found.Rules[i].Text)
			case r.Loose:
				if err := c.dropLoose(ctx, w, want.name, r, s); err != nil {
					return nil, err
				}
			}
		}
	}
	for _, verb := range []string{"-F ", "-X "} { // own chains may jump to each other
		for _, name := range own {
			s.rule(verb + name)
		}
	}
	return s, nil
}

// unneeded returns the existing own chains to which only named rules jump.
func (w *wanted) unneeded(have *Table) []string {
	var own []string
	for _, want := range w.chains {
		if !want.shared && have.Chain(want.name) != nil {
			own = append(own, want.name)
		}
	}
	return slices.DeleteFunc(slices.Clone(own), func(name string) bool {
		for _, found := range have.Chains {
			if slices.Contains(own, found.Name) {
				continue
			}
			seen := 0
			for _, r := range found.Rules {
				if leadsTo(r.Words) != name {
					continue
				}
				if !w.names(found.Name, r) {
					return true
				}
				seen++
			}
			if seen > w.leading(found.Name, name) {
				return true
			}
		}
		return false
	})
}

// names reports whether a rule of a shared chain is named: with its words, or by a loose rule that jumps to the same
// chain.
func (w *wanted) names(chainName string, found Rule) bool {
	for _, want := range w.chains {
		if want.name != chainName {
			continue
		}
		for _, r := range want.rules {
			if slices.Equal(r.words, found.Words) || r.Loose && leadsTo(r.words) == leadsTo(found.Words) {
				return true
			}
		}
	}
	return false
}

// leading counts the named rules of a chain that jump to another one.
func (w *wanted) leading(from, to string) int {
	n := 0
	for _, want := range w.chains {
		for _, r := range want.rules {
			if want.name == from && leadsTo(r.words) == to {
				n++
			}
		}
	}
	return n
}

// dropLoose deletes a rule that iptables-save prints differently.
func (c *Conn) dropLoose(ctx context.Context, w *wanted, name string, r rule, s *script) error {
	there, err := c.has(ctx, w.IPTables, name, r.words)
	if there {
		s.rule("-D " + name + " " + r.Text)
	}
	return err
}
