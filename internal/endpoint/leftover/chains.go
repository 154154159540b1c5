// SPDX-License-Identifier: Apache-2.0

package leftover

import (
	"context"
	"errors"
	"strings"

	"github.com/weft-net/weft/internal/kernel/iptables"
)

// containerChain tells whether a chain is a container's: it is named by a hash of network and container, and what is in
// it and what leads to it says both in its comment.
func containerChain(name string) bool { return named(name, "CNI-", 24) }

// named tells whether a chain's name is a prefix and so many hexadecimal digits. (This is no pattern, because compiling
// one is a twentieth of what a plugin's process takes to start.)
func named(name, prefix string, digits int) bool {
	rest, ok := strings.CutPrefix(name, prefix)
	return ok && len(rest) == digits && strings.Trim(rest, "0123456789abcdef") == ""
}

// ownerOf reads the end of a comment: name: "network" id: "container".
func ownerOf(comment string) (network, container string, ok bool) {
	i := strings.LastIndex(comment, `name: "`)
	if i < 0 {
		return "", "", false
	}
	network, rest, _ := strings.Cut(comment[i+len(`name: "`):], `"`)
	rest, ok = strings.CutPrefix(rest, ` id: "`)
	container, rest, closed := strings.Cut(rest, `"`)
	return network, container, ok && closed && rest == ""
}

// takeChains takes the masquerading chains that bridge and ptp make.
func takeChains(ctx context.Context, n *node, s Scope) error {
	found, err := n.iptables(ctx, "nat", s, containerChain)
	if err != nil {
		return err
	}
	var errs []error
	for _, t := range found {
		errs = append(errs, t.takeOwned(ctx, containerChain, s))
	}
	return errors.Join(errs...)
}

// takeOwned takes the chains of a table whose name is of a kind, and which are owned by who goes. One that a killed
// call left empty is known by its name alone, on DEL.
func (t tables) takeOwned(ctx context.Context, kind func(name string) bool, s Scope) error {
	return t.take(ctx, func(have *iptables.Table) iptables.Choice {
		var choice iptables.Choice
		for _, c := range have.Chains {
			if kind(c.Name) && (s.names(c.Name) || owned(append(have.LeadingTo(c.Name), c.Rules...), s)) {
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
			if network, container, ok := ownerOf(comment); ok && s.Container(network, container) {
				return true
			}
		}
	}
	return false
}
