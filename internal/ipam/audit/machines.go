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

// learnPromises looks at all claims.
func (p *Report) learnPromises(ctx context.Context, objects store.Objects) error {
	p.promised = map[netip.Addr]string{}
	for _, kind := range []store.Kind{store.AddressClaims(), store.IPAMClaims()} {
		all, err := objects.List(ctx, kind)
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return fmt.Errorf("list of %s: %w", kind.Resource, err)
		}
		for _, o := range all {
			for _, a := range claims.Addresses(o) {
				p.promised[a] = o.Key.String()
			}
			if m, is := claims.PromiseOf(o); is {
				p.Machines = append(p.Machines, m)
			}
		}
	}
	slices.SortFunc(p.Machines, func(a, b claims.MachinePromise) int {
		return strings.Compare(a.Machine+" "+a.Claim, b.Machine+" "+b.Claim)
	})
	return nil
}

// ReleaseMachine takes the promises to a virtual machine, "namespace/name", back, and says which. Of a machine that
// runs the addresses stay with its pod until that goes.
func ReleaseMachine(ctx context.Context, objects store.Objects, machine string) ([]string, error) {
	all, err := objects.List(ctx, store.AddressClaims())
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return nil, fmt.Errorf("list of claims: %w", err)
	}
	done := []string{}
	for _, o := range all {
		m, is := claims.PromiseOf(o)
		if !is || m.Machine != machine {
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
		return nil, model.Faultf(model.CodeInvalidConf, "see the machines in `weft ipam show`",
			"nothing is promised to virtual machine %s", machine)
	}
	return done, nil
}
