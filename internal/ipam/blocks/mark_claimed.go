// SPDX-License-Identifier: Apache-2.0

package blocks

import (
	"context"
	"errors"
	"net/netip"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/ipam/claims"
)

// markClaimed records which addresses of a block that is about to be this node's belong to claims, in the journal too:
// the node that knew it may never come back.
func (af *affinity) markClaimed(ctx context.Context, p *pool, cidr netip.Prefix) error {
	for _, kind := range []store.Kind{store.AddressClaims(), store.IPAMClaims()} {
		all, err := store.WithTimeout(ctx, func(ctx context.Context) ([]store.Object, error) {
			return af.cfg.Objects.List(ctx, kind)
		})
		if errors.Is(err, store.ErrNotFound) {
			continue
		}
		if err != nil {
			return store.Unreachable("list of "+kind.Resource, err)
		}
		for _, o := range all {
			id := o.Key.Namespace + "/" + o.Key.Name
			if kind == store.AddressClaims() {
				id = claims.AddressClaimPrefix + id
			}
			for _, a := range claims.Addresses(o) {
				if cidr.Contains(a) {
					af.state.markClaim(p, a, id)
				}
			}
		}
	}
	return af.journal.saveIfUnsaved()
}
