// SPDX-License-Identifier: Apache-2.0

package blocks

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/ipam/grants"
	"github.com/weft-net/weft/internal/model"
)

// cover makes sure that the pool has the addresses of a want, where the want may add them. Regions are only ever added,
// in one compare-and-swap, so that nodes that see the same range for the first time agree on how it is cut.
func (af *affinity) cover(ctx context.Context, p *pool, w want) error {
	af.mem.mu.Lock()
	known := p.object.Version != "" && len(p.lacks(w)) == 0
	af.mem.mu.Unlock()
	if known {
		return nil
	}
	const tries = 10
	for range tries {
		done, err := af.coverOnce(ctx, p, w)
		if err != nil {
			return err
		}
		if done {
			return af.registry.look(ctx, p) // what others have need not be tried
		}
	}
	return model.Faultf(model.CodeTryAgain, "are the definitions of deploy/crds installed?",
		"pool %q cannot be written", p.name)
}

// lacks are the parts of a want's network that the pool does not have.
func (p *pool) lacks(w want) []netip.Prefix {
	if !w.network.IsValid() {
		return nil // whatever the pool has will do
	}
	return grants.Missing(p.spec, w.network)
}

func (af *affinity) coverOnce(ctx context.Context, p *pool, w want) (bool, error) {
	kind := store.AddressPools()
	o, err := store.Bounded(ctx, func(ctx context.Context) (store.Object, error) {
		return af.cfg.Objects.Get(ctx, kind, kind.Key("", p.name))
	})
	missing := errors.Is(err, store.ErrNotFound)
	switch {
	case missing && !w.grow:
		return false, model.Faultf(model.CodeInvalidConf, "make an AddressPool of that name", "%s: there is no pool %q",
			w.field, p.name)
	case missing:
		o = store.Object{}
	case err != nil:
		return false, store.Unreachable("pool "+p.name, err)
	}
	spec := model.AddressPool{Name: p.name}
	if !missing {
		if spec, err = o.AddressPool(); err != nil {
			return false, err
		}
	}
	af.mem.mu.Lock()
	af.mem.see(p, o, spec)
	lacks := p.lacks(w)
	af.mem.mu.Unlock()
	if len(lacks) == 0 {
		return true, nil
	}
	if !w.grow {
		return false, model.Faultf(model.CodeInvalidConf,
			"add it to spec.regions of the pool, or choose addresses that are there",
			"%s: pool %q does not have %s", w.field, p.name, w.network)
	}
	return af.enlarge(ctx, p, w, o, spec, lacks)
}

// enlarge adds regions, and with them what whereabouts has given of them.
func (af *affinity) enlarge(
	ctx context.Context, p *pool, w want, o store.Object, spec model.AddressPool, lacks []netip.Prefix,
) (bool, error) {
	if af.cfg.Apart {
		return af.requests.requestRange(ctx, p, w)
	}
	next, spec, err := grants.Extended(ctx, af.cfg.Objects, o, spec, lacks, model.PoolRequest{
		Addresses: count(w.spans), Network: w.alias,
	})
	if err != nil {
		return false, fmt.Errorf("%s: %w", w.field, err)
	}
	if err := af.cfg.Step.At("before pool"); err != nil {
		return false, err
	}
	got, err := store.Bounded(ctx, func(ctx context.Context) (store.Object, error) {
		if o.Version == "" {
			return af.cfg.Objects.Create(ctx, store.AddressPools(), next)
		}
		return af.cfg.Objects.CompareAndSwap(ctx, store.AddressPools(), o.Version, next)
	})
	if errors.Is(err, store.ErrExists) || errors.Is(err, store.ErrConflict) || errors.Is(err, store.ErrNotFound) {
		return false, nil // somebody was faster: look again
	}
	if err != nil {
		return false, store.Unreachable("pool "+p.name, err)
	}
	af.mem.mu.Lock()
	af.mem.see(p, got, spec)
	af.mem.mu.Unlock()
	return true, af.cfg.Step.At("after pool")
}
