// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/ipam/claims"
	"github.com/weft-net/weft/internal/model"
)

// readClaims reads all claims.
func (p *Report) readClaims(ctx context.Context, objects store.Objects) error {
	p.claimed = map[netip.Addr]string{}
	for _, kind := range []store.Kind{store.AddressClaims(), store.IPAMClaims()} {
		all, err := objects.List(ctx, kind)
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return fmt.Errorf("list of %s: %w", kind.Resource, err)
		}
		for _, o := range all {
			for _, a := range claims.Addresses(o) {
				p.claimed[a] = o.Key.String()
			}
			if m, is := claims.VMClaimOf(o); is {
				p.VMs = append(p.VMs, m)
			}
		}
	}
	slices.SortFunc(p.VMs, func(a, b claims.VMClaim) int {
		return strings.Compare(a.VM+" "+a.Claim, b.VM+" "+b.Claim)
	})
	return nil
}

// ReleaseVM deletes the claims of a virtual machine, "namespace/name", and returns them. If the VM runs, its pod keeps
// the addresses until it is deleted.
func ReleaseVM(ctx context.Context, objects store.Objects, vm string) ([]string, error) {
	all, err := objects.List(ctx, store.AddressClaims())
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return nil, fmt.Errorf("list of claims: %w", err)
	}
	done := []string{}
	for _, o := range all {
		m, is := claims.VMClaimOf(o)
		if !is || m.VM != vm {
			continue
		}
		if err := objects.Delete(ctx, store.AddressClaims(), o.Key, o.Version); err != nil &&
			!errors.Is(err, store.ErrNotFound) {
			return done, fmt.Errorf("%s: %w", o.Key, err)
		}
		var words []string
		for _, a := range m.Addrs {
			words = append(words, a.String())
		}
		done = append(done, o.Key.String()+": "+strings.Join(words, ", "))
	}
	if len(done) == 0 {
		return nil, model.Errorf(model.CodeInvalidConf, "see the VMs in `weft ipam show`",
			"virtual machine %s has no claims", vm)
	}
	return done, nil
}
