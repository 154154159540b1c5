// SPDX-License-Identifier: Apache-2.0

package blocks

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/model"
)

// cover makes sure that the pool has the addresses of a want, where the want may add them. Regions are only ever added, in
// one compare-and-swap, so that nodes that see the same range for the first time agree on how it is cut.
func (e *Engine) cover(ctx context.Context, p *pool, w want) error {
	e.mu.Lock()
	known := p.object.Version != "" && len(p.lacks(w)) == 0
	e.mu.Unlock()
	if known {
		return nil
	}
	const tries = 10
	for range tries {
		done, err := e.coverOnce(ctx, p, w)
		if err != nil {
			return err
		}
		if done {
			return e.look(ctx, p) // what others have need not be tried
		}
	}
	return model.Faultf(model.CodeTryAgain, "are the definitions of deploy/crds installed?", "pool %q cannot be written", p.name)
}

// lacks are the parts of a want's network that the pool does not have.
func (p *pool) lacks(w want) []netip.Prefix {
	if !w.network.IsValid() {
		return nil // whatever the pool has will do
	}
	return Missing(p.spec, w.network)
}

func (e *Engine) coverOnce(ctx context.Context, p *pool, w want) (bool, error) {
	kind := store.AddressPools()
	o, err := Bounded(ctx, func(ctx context.Context) (store.Object, error) {
		return e.cfg.Objects.Get(ctx, kind, kind.Key("", p.name))
	})
	missing := errors.Is(err, store.ErrNotFound)
	switch {
	case missing && !w.grow:
		return false, model.Faultf(model.CodeInvalidConf, "make an AddressPool of that name", "%s: there is no pool %q", w.field, p.name)
	case missing:
		o = store.Object{}
	case err != nil:
		return false, Unreachable("pool "+p.name, err)
	}
	spec := model.AddressPool{Name: p.name}
	if !missing {
		if spec, err = o.AddressPool(); err != nil {
			return false, err
		}
	}
	e.mu.Lock()
	e.see(p, o, spec)
	lacks := p.lacks(w)
	e.mu.Unlock()
	if len(lacks) == 0 {
		return true, nil
	}
	if !w.grow {
		return false, model.Faultf(model.CodeInvalidConf, "add it to spec.regions of the pool, or choose addresses that are there",
			"%s: pool %q does not have %s", w.field, p.name, w.network)
	}
	return e.enlarge(ctx, p, w, o, spec, lacks)
}

// enlarge adds regions, and with them what whereabouts has given of them.
func (e *Engine) enlarge(ctx context.Context, p *pool, w want, o store.Object, spec model.AddressPool, lacks []netip.Prefix) (bool, error) {
	if e.cfg.Apart {
		return e.requestRange(ctx, p, w)
	}
	next, spec, err := extended(ctx, e.cfg.Objects, o, spec, lacks, model.PoolRequest{Addresses: count(w.spans), Network: w.alias})
	if err != nil {
		return false, fmt.Errorf("%s: %w", w.field, err)
	}
	if err := e.step("before pool"); err != nil {
		return false, err
	}
	got, err := Bounded(ctx, func(ctx context.Context) (store.Object, error) {
		if o.Version == "" {
			return e.cfg.Objects.Create(ctx, store.AddressPools(), next)
		}
		return e.cfg.Objects.CompareAndSwap(ctx, store.AddressPools(), o.Version, next)
	})
	if errors.Is(err, store.ErrExists) || errors.Is(err, store.ErrConflict) || errors.Is(err, store.ErrNotFound) {
		return false, nil // somebody was faster: look again
	}
	if err != nil {
		return false, Unreachable("pool "+p.name, err)
	}
	e.mu.Lock()
	e.see(p, got, spec)
	e.mu.Unlock()
	return true, e.step("after pool")
}
