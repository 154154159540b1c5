// SPDX-License-Identifier: Apache-2.0

package leftover

import (
	"context"
	"errors"
	"regexp"

	"github.com/weft-net/weft/internal/kernel/iptables"
)

// A container's chain is named by a hash of network and container; what is in it, and what leads to it, says both in its
// comment.
var (
	containerChain = regexp.MustCompile(`^CNI-[0-9a-f]{24}$`)
	ownerComment   = regexp.MustCompile(`name: "([^"]*)" id: "([^"]*)"$`)
)

// takeChains takes the masquerading chains that bridge and ptp make.
func takeChains(ctx context.Context, n *node, s Scope) error {
	found, err := n.iptables(ctx, "nat", containerChain.MatchString)
	if err != nil {
		return err
	}
	var errs []error
	for _, t := range found {
		errs = append(errs, t.takeOwned(ctx, containerChain, s))
	}
	return errors.Join(errs...)
}

// takeOwned takes the chains of a table whose name is of a kind, and which are owned by who goes. One that a killed call
// left empty is known by its name alone, on DEL.
func (t tables) takeOwned(ctx context.Context, name *regexp.Regexp, s Scope) error {
	return t.conn.Take(ctx, t.IPTables, func(have *iptables.Table) iptables.Choice {
		var choice iptables.Choice
		for _, c := range have.Chains {
			if name.MatchString(c.Name) && (s.names(c.Name) || owned(append(have.LeadingTo(c.Name), c.Rules...), s)) {
				choice.Chains = append(choice.Chains, c.Name)
			}
		}
		return choice
	})
}

// owned tells whether any of the rules names an owner who goes.
func owned(rules []iptables.Rule, s Scope) bool {
	for _, r := range rules {
		for _, comment := range r.Comments() {
			if m := ownerComment.FindStringSubmatch(comment); m != nil && s.Container(m[1], m[2]) {
				return true
			}
		}
	}
	return false
}
