// SPDX-License-Identifier: Apache-2.0

package cleanup

import (
	"context"
	"errors"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/kernel/nft"
)

// maxTries bounds the retries when another program removes a part meanwhile.
const maxTries = 5

// removeRules removes single rules from nftables chains.
func (n *node) removeRules(ctx context.Context, from []nft.Place, choose func(nft.OtherRule) bool) error {
	return n.removeChains(ctx, from, choose, nil)
}

// removeChains removes single rules from nftables chains, and whole chains with them.
func (n *node) removeChains(
	ctx context.Context,
	from []nft.Place,
	choose func(nft.OtherRule) bool,
	chains []nft.Place,
) error {
	c, err := n.host.Netfilter()
	if err != nil {
		return err
	}
	for range maxTries {
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
		if err = c.Delete(ctx, rules, chains); !errors.Is(err, unix.ENOENT) {
			return err
		}
		var listErr error
		if chains, listErr = n.remaining(ctx, chains); listErr != nil {
			return listErr
		}
	}
	return err
}

// remaining returns the chains that still exist.
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
