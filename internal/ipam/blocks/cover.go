// SPDX-License-Identifier: Apache-2.0

package blocks

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/ipam/addrspan"
	"github.com/weft-net/weft/internal/ipam/grants"
	"github.com/weft-net/weft/internal/ipam/poolconf"
	"github.com/weft-net/weft/internal/model"
)

// cover makes sure that the pool has the addresses of a want, where the want may add them. Regions are only ever added,
// in one compare-and-swap, so that nodes that see the same range for the first time agree on its block size.
func (af *affinity) cover(ctx context.Context, p *pool, w poolconf.Want) error {
	af.state.mu.Lock()
	known := p.object.Version != "" && len(p.lacks(w)) == 0
	af.state.mu.Unlock()
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
			return af.registry.refreshRemote(ctx, p) // learn which blocks other nodes have
		}
	}
	return model.Errorf(model.CodeTryAgain, "are the definitions of deploy/crds installed?",
		"pool %q cannot be written", p.name)
}

// lacks returns the parts of a want's network that the pool does not have.
func (p *pool) lacks(w poolconf.Want) []netip.Prefix {
	if !w.Network.IsValid() {
		return nil // any address of the pool will do
	}
	return grants.Missing(p.spec, w.Network)
}

func (af *affinity) coverOnce(ctx context.Context, p *pool, w poolconf.Want) (bool, error) {
	kind := store.AddressPools()
	o, err := store.WithTimeout(ctx, func(ctx context.Context) (store.Object, error) {
		return af.cfg.Objects.Get(ctx, kind, kind.Key("", p.name))
	})
	missing := errors.Is(err, store.ErrNotFound)
	switch {
	case missing && !w.Grow:
		return false, model.Errorf(model.CodeInvalidConf, "create an AddressPool of that name", "%s: there is no pool %q",
			w.Field, p.name)
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
	af.state.mu.Lock()
	af.state.updatePoolLocked(p, o, spec)
	lacks := p.lacks(w)
	af.state.mu.Unlock()
	if len(lacks) == 0 {
		return true, nil
	}
	if !w.Grow {
		return false, model.Errorf(model.CodeInvalidConf,
			"add it to spec.regions of the pool, or choose addresses that are there",
			"%s: pool %q does not have %s", w.Field, p.name, w.Network)
	}
	return af.enlarge(ctx, p, w, o, spec, lacks)
}

// enlarge adds regions, and reservations for what whereabouts has allocated of them.
func (af *affinity) enlarge(
	ctx context.Context, p *pool, w poolconf.Want, o store.Object, spec model.AddressPool, lacks []netip.Prefix,
) (bool, error) {
	if af.cfg.SeparateController {
		return af.requestRange(ctx, p, w)
	}
	next, spec, err := grants.Extended(ctx, af.cfg.Objects, o, spec, lacks, model.PoolRequest{
		Addresses: addrspan.Count(w.Spans), Network: w.Alias,
	})
	if err != nil {
		return false, fmt.Errorf("%s: %w", w.Field, err)
	}
	if err := af.cfg.Failpoint.At("before pool"); err != nil {
		return false, err
	}
	got, err := store.WithTimeout(ctx, func(ctx context.Context) (store.Object, error) {
		if o.Version == "" {
			return af.cfg.Objects.Create(ctx, store.AddressPools(), next)
		}
		return af.cfg.Objects.CompareAndSwap(ctx, store.AddressPools(), o.Version, next)
	})
	if errors.Is(err, store.ErrExists) || errors.Is(err, store.ErrConflict) || errors.Is(err, store.ErrNotFound) {
		return false, nil // another node was faster: read it again
	}
	if err != nil {
		return false, store.Unreachable("pool "+p.name, err)
	}
	af.state.mu.Lock()
	af.state.updatePoolLocked(p, got, spec)
	af.state.mu.Unlock()
	return true, af.cfg.Failpoint.At("after pool")
}

// rangePoll is how often an agent checks whether its request was granted.
const rangePoll = 100 * time.Millisecond

// requestRange requests a want's range from the controller, and waits until the pool has it.
func (af *affinity) requestRange(ctx context.Context, p *pool, w poolconf.Want) (bool, error) {
	if err := af.requests.Create(ctx, model.PoolRequest{
		Pool: p.name, CIDR: w.Network, Addresses: addrspan.Count(w.Spans), Network: w.Alias,
	}); err != nil {
		return false, err
	}
	const way = "it is retried; does the Deployment weft-controller run?"
	deadline := af.cfg.After(af.cfg.WaitLimit)
	for {
		select {
		case <-af.cfg.After(rangePoll):
		case <-deadline:
			return false, model.Errorf(model.CodeTryAgain, way, "%s: the controller has not added range %[3]s to pool %[2]q yet",
				w.Field, p.name, w.Network)
		case <-ctx.Done():
			return false, model.Errorf(model.CodeTryAgain, way, "%s: waiting for the range %s of pool %q: %w", w.Field,
				w.Network, p.name, ctx.Err())
		}
		if err := af.registry.readPool(ctx, p); err != nil {
			return false, err
		}
		af.state.mu.Lock()
		there := p.object.Version != "" && len(p.lacks(w)) == 0
		af.state.mu.Unlock()
		if there {
			return true, nil
		}
	}
}
