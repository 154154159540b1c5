// SPDX-License-Identifier: Apache-2.0

package leftover

import (
	"context"
	"errors"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/kernel/nft"
)

// tries bounds how often is looked again because somebody else took a part of it meanwhile.
const tries = 5

// takeRules takes single rules out of nft chains.
func (n *node) takeRules(ctx context.Context, from []nft.Place, choose func(nft.OtherRule) bool) error {
	return n.take(ctx, from, choose, nil)
}

// take takes single rules out of nft chains, and whole chains with them.
func (n *node) take(ctx context.Context, from []nft.Place, choose func(nft.OtherRule) bool, chains []nft.Place) error {
	c, err := n.host.Netfilter()
	if err != nil {
		return err
	}
	for range tries {
		var rules []nft.OtherRule
		for _, p := range from {
			found, err := c.RulesOf(ctx, p)
			if err != nil {
				return err
			}
			for _, r := range found {
				if choose(r) {
					rules = append(rules, r)
				}
			}
		}
		if err = c.Take(ctx, rules, chains); !errors.Is(err, unix.ENOENT) {
			return err
		}
		var listErr error
		if chains, listErr = n.remaining(ctx, chains); listErr != nil {
			return listErr
		}
	}
	return err
}

// remaining are the chains that are still there.
func (n *node) remaining(ctx context.Context, chains []nft.Place) ([]nft.Place, error) {
	n.listed = false
	places, err := n.places(ctx)
	if err != nil {
		return nil, err
	}
	var out []nft.Place
	for _, p := range places {
		for _, want := range chains {
			if p == want {
				out = append(out, p)
			}
		}
	}
	return out, nil
}
