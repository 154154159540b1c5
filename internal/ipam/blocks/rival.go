// SPDX-License-Identifier: Apache-2.0

package blocks

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"time"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/store"
)

// The addresses of the cluster's network are one space, and people can make pools overlap at any time: an older one is given a
// region that a younger one has, and the younger one's addresses are in use. Which of two pools may go on is one question
// (model.PoolConditions), and every node answers it by what it knows just then; that no address is given twice must not depend on
// it. So a block of one pool never stands beside a block of another that has some of its addresses: whoever claims one looks,
// after its claim is in the store, whether there is such a rival, and gives way.

// rival is a block of another pool of the cluster's network that has some of the addresses of a block which this node has just
// claimed; nil: there is none. Of two nodes that claim such blocks at a time at least one sees the other's, because each looks
// after it has claimed.
func (e *Engine) rival(ctx context.Context, p *pool, cidr netip.Prefix) (*model.AddressBlock, error) {
	pools, err := asking(ctx, func(ctx context.Context) ([]store.Object, error) {
		return e.cfg.Objects.List(ctx, store.AddressPools())
	})
	if err != nil {
		return nil, unreachable("list of pools", err)
	}
	ofCluster := map[string]bool{}
	contested := false
	for _, o := range pools {
		spec, err := o.AddressPool()
		if err != nil || !spec.OfCluster() {
			continue
		}
		ofCluster[spec.Name] = true
		contested = contested || spec.Name != p.name && slices.ContainsFunc(spec.Regions, func(r model.AddressRegion) bool { return r.CIDR.Overlaps(cidr) })
	}
	if !ofCluster[p.name] || !contested {
		return nil, nil
	}
	all, err := asking(ctx, func(ctx context.Context) ([]store.Object, error) {
		return e.cfg.Objects.List(ctx, store.AddressBlocks())
	})
	if err != nil {
		return nil, unreachable("list of blocks", err)
	}
	for _, o := range all {
		spec, err := o.AddressBlock()
		if err == nil && spec.Pool != p.name && ofCluster[spec.Pool] && spec.CIDR.Overlaps(cidr) {
			return &spec, nil
		}
	}
	return nil, nil
}

// yield gives up a block that nothing was given of yet, where it has a rival. Where that cannot be found out now the block is not
// taken into use either: Run comes across it.
func (e *Engine) yield(ctx context.Context, p *pool, o store.Object, cidr netip.Prefix) (bool, error) {
	e.mu.Lock()
	alone := p.object.Version != "" && !p.spec.OfCluster() // a network of its own
	e.mu.Unlock()
	if alone {
		return false, nil
	}
	rival, err := e.rival(ctx, p, cidr)
	if rival == nil || err != nil {
		return false, err
	}
	e.mu.Lock()
	p.rivals[rival.CIDR] = *rival
	e.mu.Unlock()
	e.cfg.Log.Warn("block not taken: another pool's has some of its addresses", "pool", p.name, "block", cidr.String(),
		"other", rival.Pool, "otherBlock", rival.CIDR.String(), "node", rival.Node)
	kind := store.AddressBlocks()
	_, err = asking(ctx, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, e.cfg.Objects.Delete(ctx, kind, o.Key, o.Version)
	})
	if errors.Is(err, store.ErrNotFound) || errors.Is(err, store.ErrConflict) {
		err = nil // whoever changed it asks for something of it: Run comes across it
	}
	if err != nil {
		return true, unreachable("return of block "+cidr.String(), err)
	}
	return true, e.step("after yield")
}

// hearRival notes what happened to a block of another pool; the caller holds the lock.
func (e *Engine) hearRival(spec model.AddressBlock, gone bool) {
	for _, p := range e.pools {
		_, had := p.rivals[spec.CIDR]
		switch {
		case p.name == spec.Pool || had && p.rivals[spec.CIDR].Pool != spec.Pool:
		case gone && had:
			delete(p.rivals, spec.CIDR)
			p.uncontested()
		case !gone && !had && e.rivals(p, spec):
			p.rivals[spec.CIDR] = spec
		}
	}
}

// meetRivals takes over what a list of all blocks says of a pool's rivals; the caller holds the lock.
func (e *Engine) meetRivals(p *pool, all []store.Object) {
	was := p.rivals
	p.rivals = map[netip.Prefix]model.AddressBlock{}
	for _, o := range all {
		if spec, err := o.AddressBlock(); err == nil && e.rivals(p, spec) {
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
func (e *Engine) rivals(p *pool, spec model.AddressBlock) bool {
	_, ofCluster := e.catalog.pools[spec.Pool]
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
