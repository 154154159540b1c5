// SPDX-License-Identifier: Apache-2.0

package blocks

import (
	"context"
	"errors"
	"net/netip"
	"slices"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/ipam"
	"github.com/weft-net/weft/internal/model"
)

// poolFor is the pool that an address of an attachment is of.
func (e *Engine) poolFor(ctx context.Context, req ipam.Request, a netip.Addr) (*pool, error) {
	name := ""
	if s, err := e.confs.Settings(req); err == nil {
		name = s.Pool
		for _, w := range s.Wants {
			if w.Network.Contains(a) {
				name = w.Pool
			}
		}
	}
	if name == "" {
		var err error
		if name, err = e.clusterPoolOf(ctx, a); err != nil {
			return nil, err
		}
	}
	if name == "" {
		return nil, model.Errorf(model.CodeTryAgain, "", "address %s is in no pool that is known", a)
	}
	e.state.mu.Lock()
	p := e.state.poolLocked(name)
	_, known := p.region(a)
	e.state.mu.Unlock()
	if known {
		return p, nil
	}
	return p, e.registry.readPool(ctx, p)
}

// clusterPoolOf is the pool of the cluster's network that an address is of: where pools overlap, the one with a block
// that has it.
func (e *Engine) clusterPoolOf(ctx context.Context, a netip.Addr) (string, error) {
	e.state.mu.Lock()
	all := e.state.catalog.All()
	e.state.mu.Unlock()
	found := ""
	for _, spec := range all {
		i := slices.IndexFunc(spec.Regions, func(r model.AddressRegion) bool { return r.CIDR.Contains(a) })
		if i < 0 {
			continue
		}
		if found == "" {
			found = spec.Name
			continue
		}
		_, _, err := e.registry.readBlock(ctx, spec.Name, netip.PrefixFrom(a, spec.Regions[i].BlockSize).Masked())
		switch {
		case err == nil:
			return spec.Name, nil
		case !errors.Is(err, store.ErrNotFound):
			return "", err
		}
	}
	return found, nil
}
