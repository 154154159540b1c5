// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/ipam/claims"
	"github.com/weft-net/weft/internal/model"
)

// examineClaims checks reservations, and the addresses of claims.
func (p *Report) examineClaims(ctx context.Context, objects store.Objects) error {
	for _, check := range []struct {
		kind    store.Kind
		examine func(store.Object)
	}{
		{store.AddressReservations(), p.examineReservation},
		{store.AddressClaims(), p.claimExaminer()},
	} {
		all, err := objects.List(ctx, check.kind)
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return fmt.Errorf("list of %s: %w", check.kind.Resource, err)
		}
		for _, o := range all {
			check.examine(o)
		}
	}
	return nil
}

// examineReservation finds reservations without effect.
func (p *Report) examineReservation(o store.Object) {
	ranges, err := o.AddressReservation()
	if err != nil {
		p.invalid(o, err)
	}
	for _, r := range ranges {
		if len(p.poolsOf(r.CIDR)) == 0 {
			p.found(NoPool, o, nil, "", "%s is in no pool", r.CIDR)
		}
	}
}

// poolsOf returns the pools that overlap a prefix.
func (p *Report) poolsOf(cidr netip.Prefix) []string {
	var out []string
	for _, pool := range p.Pools {
		if slices.ContainsFunc(pool.Regions, func(r model.AddressRegion) bool { return r.CIDR.Overlaps(cidr) }) {
			out = append(out, pool.Name)
		}
	}
	return out
}

// claimExaminer returns a check that finds two claims with one address, and claimed addresses that no pool of the
// cluster's network has.
func (p *Report) claimExaminer() func(store.Object) {
	first := map[netip.Addr]string{}
	return func(o store.Object) {
		ofVM := slices.ContainsFunc(p.VMs, func(m claims.VMClaim) bool {
			return m.Claim == o.Key.Namespace+"/"+o.Key.Name
		})
		in, err := o.AddressClaim()
		if err != nil {
			p.invalid(o, err)
			return
		}
		for _, text := range in.Addresses {
			a, err := netip.ParseAddr(text)
			if err != nil {
				p.found(Invalid, o, nil, "", "status.addresses: %q is no address: delete the claim, and create it again", text)
				continue
			}
			var pool string
			for _, name := range p.poolsOf(netip.PrefixFrom(a, a.BitLen())) {
				if p.pool(name).IsClusterPool() || ofVM {
					pool = name
				}
			}
			switch was, taken := first[a]; {
			case taken:
				p.found(Conflict, o, nil, "", "address %s is also in %s: delete one of them", a, was)
			case pool == "":
				p.found(NoPool, o, nil, "", "address %s is in no pool of the cluster's network: no pod can get it", a)
			}
			if first[a] == "" {
				first[a] = o.Key.String()
			}
		}
	}
}
