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

// The addresses of the cluster's network are one space, and people can make pools overlap at any time: an older one is
// given a region that a younger one has, and the younger one's addresses are in use. Which of two pools may go on is
// one question (model.PoolConditions), and every node answers it by what it knows just then; that no address is given
// twice must not depend on it. So a block of one pool never stands beside a block of another that has some of its
// addresses: whoever claims one looks, after its claim is in the store, whether there is such a rival, and gives way.

// ground is what stands in the way of a block that this node has just claimed: a block of another pool of the cluster's
// network that has some of its addresses, or that its own pool does not have them any more.
type ground struct {
	rival *model.AddressBlock
	moved bool
}

// contest looks what stands in the way of a block, after its claim is in the store; a zero ground is nothing. Of two
// nodes that claim such blocks at a time at least one sees the other's, because each looks after it has claimed. People
// may have moved the addresses from the other pool to this one: then no pool overlaps, but blocks may be in use there.
// They were claimed before that, because since then whoever claims one gives way. So they are looked for once, and
// again when people have changed a pool.
func (rg *registry) contest(ctx context.Context, p *pool, cidr netip.Prefix) (ground, error) {
	pools, err := store.Bounded(ctx, func(ctx context.Context) ([]store.Object, error) {
		return rg.cfg.Objects.List(ctx, store.AddressPools())
	})
	if err != nil {
		return ground{}, store.Unreachable("list of pools", err)
	}
	ofCluster, state := map[string]bool{}, map[string]string{}
	var own []model.AddressRegion
	contested := false
	for _, o := range pools {
		spec, err := o.AddressPool()
		if err != nil || !spec.OfCluster() {
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
		return ground{}, nil
	}
	within := func(b netip.Prefix) bool {
		return slices.ContainsFunc(own, func(r model.AddressRegion) bool { return r.CIDR.Overlaps(b) })
	}
	rg.mu.Lock()
	known := maps.Equal(rg.clean[p.name], state)
	rg.mu.Unlock()
	if !within(cidr) {
		return ground{moved: true}, nil
	}
	if known && !contested {
		return ground{}, nil
	}
	all, err := store.Bounded(ctx, func(ctx context.Context) ([]store.Object, error) {
		return rg.cfg.Objects.List(ctx, store.AddressBlocks())
	})
	if err != nil {
		return ground{}, store.Unreachable("list of blocks", err)
	}
	for _, o := range all {
		spec, err := o.AddressBlock()
		if err != nil || spec.Pool == p.name || !ofCluster[spec.Pool] || !within(spec.CIDR) {
			continue
		}
		if contested = true; spec.CIDR.Overlaps(cidr) {
			return ground{rival: &spec}, nil
		}
	}
	if !contested {
		rg.mu.Lock()
		rg.clean[p.name] = state
		rg.mu.Unlock()
	}
	return ground{}, nil
}

// yield gives up a block that nothing was given of yet, where something stands in the way. Where that cannot be found
// out now the block is not taken into use either: Run comes across it.
func (rg *registry) yield(ctx context.Context, p *pool, o store.Object, cidr netip.Prefix) (bool, error) {
	rg.mem.mu.Lock()
	alone := p.object.Version != "" && !p.spec.OfCluster() // a network of its own
	rg.mem.mu.Unlock()
	if alone {
		return false, nil
	}
	g, err := rg.contest(ctx, p, cidr)
	switch {
	case err != nil:
		return false, err
	case g.moved:
		rg.cfg.Log.Warn("block not taken: the pool does not have its addresses any more", "pool", p.name,
			"block", cidr.String())
		if err := rg.readPool(ctx, p); err != nil {
			return true, err
		}
	case g.rival != nil:
		rg.mem.mu.Lock()
		p.rivals[g.rival.CIDR] = *g.rival
		rg.mem.mu.Unlock()
		rg.cfg.Log.Warn("block not taken: another pool's has some of its addresses", "pool", p.name, "block", cidr.String(),
			"other", g.rival.Pool, "otherBlock", g.rival.CIDR.String(), "node", g.rival.Node)
	default:
		return false, nil
	}
	kind := store.AddressBlocks()
	_, err = store.Bounded(ctx, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, rg.cfg.Objects.Delete(ctx, kind, o.Key, o.Version)
	})
	if errors.Is(err, store.ErrNotFound) || errors.Is(err, store.ErrConflict) {
		err = nil // whoever changed it asks for something of it: Run comes across it
	}
	if err != nil {
		return true, store.Unreachable("return of block "+cidr.String(), err)
	}
	return true, rg.cfg.Step.At("after yield")
}

// hearRival notes what happened to a block of another pool; the caller holds the lock.
func (rg *registry) hearRival(spec model.AddressBlock, gone bool) {
	for _, p := range rg.mem.pools {
		_, had := p.rivals[spec.CIDR]
		switch {
		case p.name == spec.Pool || had && p.rivals[spec.CIDR].Pool != spec.Pool:
		case gone && had:
			delete(p.rivals, spec.CIDR)
			p.uncontested()
		case !gone && !had && rg.rivals(p, spec):
			p.rivals[spec.CIDR] = spec
		}
	}
}

// meetRivals takes over what a list of all blocks says of a pool's rivals; the caller holds the lock.
func (rg *registry) meetRivals(p *pool, all []store.Object) {
	was := p.rivals
	p.rivals = map[netip.Prefix]model.AddressBlock{}
	for _, o := range all {
		if spec, err := o.AddressBlock(); err == nil && rg.rivals(p, spec) {
			p.rivals[spec.CIDR] = spec
		}
	}
	for cidr := range was {
		if _, still := p.rivals[cidr]; !still {
			p.uncontested()
			return
		}
	}
}

// uncontested notes that a rival has gone.
func (p *pool) uncontested() {
	for _, b := range p.order {
		b.dry, b.pause = false, time.Time{}
	}
	p.tell()
}

// rivals tells whether a block of another pool could have addresses of this one. The caller holds the lock.
func (rg *registry) rivals(p *pool, spec model.AddressBlock) bool {
	_, ofCluster := rg.mem.catalog.pools[spec.Pool]
	return p.spec.OfCluster() && ofCluster && spec.Pool != p.name &&
		slices.ContainsFunc(p.spec.Regions, func(r model.AddressRegion) bool { return r.CIDR.Overlaps(spec.CIDR) })
}

// rivalOf is the block of another pool that has an address.
func (p *pool) rivalOf(a netip.Addr) (model.AddressBlock, bool) {
	for cidr, spec := range p.rivals {
		if cidr.Contains(a) {
			return spec, true
		}
	}
	return model.AddressBlock{}, false
}

// contested tells whether another pool's block has some of these addresses.
func (p *pool) contested(cidr netip.Prefix) bool {
	for other := range p.rivals {
		if other.Overlaps(cidr) {
			return true
		}
	}
	return false
}
