// SPDX-License-Identifier: Apache-2.0

package blocks

import (
	"context"
	"errors"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/model"
)

// Users can make pools of the cluster's network overlap at any time, for example by adding a region to a pool that a
// newer pool already allocates from. Which of the two is allocatable is decided by model.PoolConditions from each
// node's cache; uniqueness of addresses must not depend on that. So blocks of two pools never overlap: after a node's
// claim is in the datastore, it checks for an overlapping block of another pool, and releases its own if there is one.

// conflict is why a block that this node has just claimed cannot be used: an overlapping block of another pool, or its
// own pool no longer has the addresses.
type conflict struct {
	block *model.AddressBlock
	moved bool
}

// checkOverlap looks for conflicts of a block after its claim is in the datastore; a zero conflict is none. Of two
// nodes that claim overlapping blocks at the same time at least one sees the other's, because each checks after its
// claim. A user may also have moved the region from another pool to this one: then the pools do not overlap, but blocks
// of the other pool may. These were claimed before the move, because a later claim would have been released. So all
// blocks are listed once, and again after a pool has changed.
func (rg *registry) checkOverlap(ctx context.Context, p *pool, cidr netip.Prefix) (conflict, error) {
	pools, err := store.WithTimeout(ctx, func(ctx context.Context) ([]store.Object, error) {
		return rg.cfg.Objects.List(ctx, store.AddressPools())
	})
	if err != nil {
		return conflict{}, store.Unreachable("list of pools", err)
	}
	ofCluster, state := map[string]bool{}, map[string]string{}
	var own []model.AddressRegion
	contested := false
	for _, o := range pools {
		spec, err := o.AddressPool()
		if err != nil || !spec.IsClusterPool() {
			continue
		}
		ofCluster[spec.Name], state[spec.Name] = true, o.Version
		if spec.Name == p.name {
			own = spec.Regions
			continue
		}
		contested = contested ||
			slices.ContainsFunc(spec.Regions, func(r model.AddressRegion) bool { return r.CIDR.Overlaps(cidr) })
	}
	if !ofCluster[p.name] {
		return conflict{}, nil
	}
	within := func(b netip.Prefix) bool {
		return slices.ContainsFunc(own, func(r model.AddressRegion) bool { return r.CIDR.Overlaps(b) })
	}
	rg.mu.Lock()
	known := maps.Equal(rg.clean[p.name], state)
	rg.mu.Unlock()
	if !within(cidr) {
		return conflict{moved: true}, nil
	}
	if known && !contested {
		return conflict{}, nil
	}
	all, err := store.WithTimeout(ctx, func(ctx context.Context) ([]store.Object, error) {
		return rg.cfg.Objects.List(ctx, store.AddressBlocks())
	})
	if err != nil {
		return conflict{}, store.Unreachable("list of blocks", err)
	}
	for _, o := range all {
		spec, err := o.AddressBlock()
		if err != nil || spec.Pool == p.name || !ofCluster[spec.Pool] || !within(spec.CIDR) {
			continue
		}
		if contested = true; spec.CIDR.Overlaps(cidr) {
			return conflict{block: &spec}, nil
		}
	}
	if !contested {
		rg.mu.Lock()
		rg.clean[p.name] = state
		rg.mu.Unlock()
	}
	return conflict{}, nil
}

// releaseConflicting releases a block that has no allocations yet, if it has a conflict. Where that cannot be checked
// now, the block is not used either: Run finds it later.
func (rg *registry) releaseConflicting(ctx context.Context, p *pool, o store.Object, cidr netip.Prefix) (bool, error) {
	rg.state.mu.Lock()
	ownNetwork := p.object.Version != "" && !p.spec.IsClusterPool() // a network of its own
	rg.state.mu.Unlock()
	if ownNetwork {
		return false, nil
	}
	g, err := rg.checkOverlap(ctx, p, cidr)
	switch {
	case err != nil:
		return false, err
	case g.moved:
		rg.cfg.Log.Warn("agent released a new block: its pool no longer has the addresses", "pool", p.name,
			"block", cidr.String())
		if err := rg.readPool(ctx, p); err != nil {
			return true, err
		}
	case g.block != nil:
		rg.state.mu.Lock()
		p.overlapping[g.block.CIDR] = *g.block
		rg.state.mu.Unlock()
		rg.cfg.Log.Warn("agent released a new block: it overlaps a block of another pool", "pool", p.name, "block", cidr.String(),
			"other", g.block.Pool, "otherBlock", g.block.CIDR.String(), "node", g.block.Node)
	default:
		return false, nil
	}
	kind := store.AddressBlocks()
	_, err = store.WithTimeout(ctx, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, rg.cfg.Objects.Delete(ctx, kind, o.Key, o.Version)
	})
	if errors.Is(err, store.ErrNotFound) || errors.Is(err, store.ErrConflict) {
		err = nil // the client that changed it requests something of it: Run handles it
	}
	if err != nil {
		return true, store.Unreachable("return of block "+cidr.String(), err)
	}
	return true, rg.cfg.Failpoint.At("after yield")
}

// handleOverlapLocked updates the overlapping blocks of all pools after an event of a block.
func (rg *registry) handleOverlapLocked(spec model.AddressBlock, gone bool) {
	for _, p := range rg.state.pools {
		_, had := p.overlapping[spec.CIDR]
		switch {
		case p.name == spec.Pool || had && p.overlapping[spec.CIDR].Pool != spec.Pool:
		case gone && had:
			delete(p.overlapping, spec.CIDR)
			p.overlapGone()
		case !gone && !had && rg.mayOverlapLocked(p, spec):
			p.overlapping[spec.CIDR] = spec
		}
	}
}

// setOverlappingLocked sets the overlapping blocks of a pool from a list of all blocks.
func (rg *registry) setOverlappingLocked(p *pool, all []store.Object) {
	was := p.overlapping
	p.overlapping = map[netip.Prefix]model.AddressBlock{}
	for _, o := range all {
		if spec, err := o.AddressBlock(); err == nil && rg.mayOverlapLocked(p, spec) {
			p.overlapping[spec.CIDR] = spec
		}
	}
	for cidr := range was {
		if _, still := p.overlapping[cidr]; !still {
			p.overlapGone()
			return
		}
	}
}

// overlapGone makes the pool's blocks eligible again after an overlapping block was released.
func (p *pool) overlapGone() {
	for _, b := range p.order {
		b.exhausted, b.nextFree = false, time.Time{}
	}
	p.notifyLocked()
}

// mayOverlapLocked reports whether a block of another pool may have addresses of this one.
func (rg *registry) mayOverlapLocked(p *pool, spec model.AddressBlock) bool {
	_, ofCluster := rg.state.catalog.Get(spec.Pool)
	return p.spec.IsClusterPool() && ofCluster && spec.Pool != p.name &&
		slices.ContainsFunc(p.spec.Regions, func(r model.AddressRegion) bool { return r.CIDR.Overlaps(spec.CIDR) })
}

// overlappingBlock returns the block of another pool that has an address.
func (p *pool) overlappingBlock(a netip.Addr) (model.AddressBlock, bool) {
	for cidr, spec := range p.overlapping {
		if cidr.Contains(a) {
			return spec, true
		}
	}
	return model.AddressBlock{}, false
}

// overlaps reports whether another pool's block has some of these addresses.
func (p *pool) overlaps(cidr netip.Prefix) bool {
	for other := range p.overlapping {
		if other.Overlaps(cidr) {
			return true
		}
	}
	return false
}
