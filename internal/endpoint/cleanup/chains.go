// SPDX-License-Identifier: Apache-2.0

package cleanup

import (
	"context"
	"errors"
	"strings"

	"github.com/weft-net/weft/internal/kernel/iptables"
)

// containerChain reports whether a chain belongs to a container: its name is a hash of network and container, and its
// rules and the rules that jump to it name both in their comments.
func containerChain(name string) bool { return named(name, "CNI-", 24) }

// named reports whether a chain's name is a prefix and this number of hexadecimal digits. (Not a regexp: compiling one
// takes 5% of the start of a plugin's process.)
func named(name, prefix string, digits int) bool {
	rest, ok := strings.CutPrefix(name, prefix)
	return ok && len(rest) == digits && strings.Trim(rest, "0123456789abcdef") == ""
}

// ownerOf parses the end of a comment: name: "network" id: "container".
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

// removeMasqueradeChains removes the masquerade chains that bridge and ptp create.
func removeMasqueradeChains(ctx context.Context, n *node, s Scope) error {
	found, err := n.iptables(ctx, "nat", s, containerChain)
	if err != nil {
		return err
	}
	var errs []error
	for _, t := range found {
		errs = append(errs, t.removeOwned(ctx, containerChain, s))
	}
	return errors.Join(errs...)
}

// removeOwned removes the chains of a kind that the scope owns. An empty one, which a killed call has left, is
// identified by its name, on DEL.
func (t ruleTable) removeOwned(ctx context.Context, kind func(name string) bool, s Scope) error {
	return t.remove(ctx, func(have *iptables.Table) iptables.Choice {
		var choice iptables.Choice
		for _, c := range have.Chains {
			if kind(c.Name) && (s.ownsChain(c.Name) || anyOwned(append(have.LeadingTo(c.Name), c.Rules...), s)) {
				choice.Chains = append(choice.Chains, c.Name)
			}
		}
		return choice
	})
}

// anyOwned reports whether any of the rules names an owner in the scope.
func anyOwned(rules []iptables.Rule, s Scope) bool {
	for _, r := range rules {
		for _, comment := range r.Comments() {
			if network, container, ok := ownerOf(comment); ok && s.MatchesContainer(network, container) {
				return true
			}
		}
	}
	return false
}
