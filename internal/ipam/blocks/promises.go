// SPDX-License-Identifier: Apache-2.0

package blocks

import (
	"context"
	"encoding/json"
	"errors"
	"net/netip"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/ipam"
)

// promises notes which addresses of a block, that is about to be this node's, belong to claims, in the journal, too: whoever
// knew it may be gone for good.
func (af *affinity) promises(ctx context.Context, p *pool, cidr netip.Prefix) error {
	for _, kind := range []store.Kind{store.AddressClaims(), store.IPAMClaims()} {
		all, err := Bounded(ctx, func(ctx context.Context) ([]store.Object, error) { return af.cfg.Objects.List(ctx, kind) })
		if errors.Is(err, store.ErrNotFound) {
			continue
		}
		if err != nil {
			return Unreachable("list of "+kind.Resource, err)
		}
		for _, o := range all {
			id := o.Key.Namespace + "/" + o.Key.Name
			if kind == store.AddressClaims() {
				id = ofAddressClaim + id
			}
			for _, a := range AddressesOf(o) {
				if cidr.Contains(a) {
					af.mem.mark(p, a, id)
				}
			}
		}
	}
	return af.journal.saveMarks()
}

// AddressesOf are the addresses that a claim has.
func AddressesOf(o store.Object) (out []netip.Addr) {
	texts, _ := claimTexts(o) // of a claim that is invalid, what can be read
	for _, text := range texts {
		if a, err := ipam.ParseAddr(text); err == nil {
			out = append(out, a)
		}
	}
	return out
}

// claimTexts are the addresses that an AddressClaim or an IPAMClaim has, as the object says them.
func claimTexts(o store.Object) ([]string, error) {
	if o.Key.Of(store.AddressClaims()) {
		c, err := o.AddressClaim()
		return c.Addresses, err
	}
	var c ipamClaim
	err := json.Unmarshal(o.Raw, &c)
	return c.Status.IPs, err
}
