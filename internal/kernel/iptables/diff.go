// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"context"
	"fmt"

	"github.com/weft-net/weft/internal/state"
)

// Diff returns the differences between the tables and what is named. The caller sets the differences' Space.
func (c *Conn) Diff(ctx context.Context, tables []state.IPTables) ([]state.Difference, error) {
	_, out, err := c.compare(ctx, tables)
	return out, err
}

// Read returns the existing ones of what is named: an own chain that differs has its existing rules.
func (c *Conn) Read(ctx context.Context, tables []state.IPTables) ([]state.IPTables, error) {
	out, _, err := c.compare(ctx, tables)
	return out, err
}

func (c *Conn) compare(ctx context.Context, tables []state.IPTables) ([]state.IPTables, []state.Difference, error) {
	groups, err := group(tables)
	if err != nil {
		return nil, nil, err
	}
	var out []state.IPTables
	var diff []state.Difference
	for _, w := range groups {
		have, err := c.Save(ctx, w.IPTables)
		if err != nil {
			return nil, nil, fmt.Errorf("%s: %w", w, err)
		}
		t := w.IPTables
		for _, want := range w.chains {
			found := have.Chain(want.name)
			if found == nil && (!builtin(want.name) || !want.shared) {
				diff = append(diff, state.Difference{Want: w.command("-N", want.name, "")})
				continue
			}
			part, d, err := c.compareChain(ctx, w, want, found)
			if err != nil {
				return nil, nil, fmt.Errorf("%s: %w", w, err)
			}
			t.Chains, diff = append(t.Chains, part), append(diff, d...)
		}
		if len(t.Chains) > 0 {
			out = append(out, t)
		}
	}
	return out, diff, nil
}

func (c *Conn) compareChain(
	ctx context.Context, w *wanted, want chain, found *Chain,
) (state.IPChain, []state.Difference, error) {
	part := state.IPChain{Name: want.name, Shared: want.shared}
	var diff []state.Difference
	for i, r := range want.rules {
		there := false
		var err error
		if !want.shared && !r.Loose {
			there = i < len(found.Rules) && found.find(r.words) >= 0
		} else {
			there, err = c.there(ctx, w, want.name, found, r)
		}
		if err != nil {
			return part, nil, err
		}
		if there {
			part.Rules = append(part.Rules, r.IPRule)
		} else {
			diff = append(diff, state.Difference{Want: w.command("-A", want.name, r.Text)})
		}
	}
	if want.shared || len(diff) > 0 {
		return part, diff, nil
	}
	part, diff = w.compareOrder(want, found, part)
	return part, diff, nil
}

// compareOrder checks whether an own chain that has all its rules has more, or another order.
func (w *wanted) compareOrder(want chain, found *Chain, part state.IPChain) (state.IPChain, []state.Difference) {
	loose := false
	for _, r := range want.rules {
		loose = loose || r.Loose
	}
	if len(want.rules) == len(found.Rules) && (loose || same(want, found)) {
		return part, nil
	}
	part.Rules = nil
	for _, r := range found.Rules {
		part.Rules = append(part.Rules, state.IPRule{Text: r.Text})
	}
	d := state.Difference{
		Want: fmt.Sprintf("%s with %d rules in their order", w.command("-N", want.name, ""), len(want.rules)),
		Have: fmt.Sprintf("%d rules", len(found.Rules)),
	}
	if len(want.rules) == len(found.Rules) {
		d.Have = "them in another order"
	}
	return part, []state.Difference{d}
}

// command prints an iptables command.
func (w *wanted) command(verb, chain, text string) string {
	s := fmt.Sprintf("%s -t %s %s %s", w.Program(), w.Table, verb, chain)
	if text != "" {
		s += " " + text
	}
	return s
}
