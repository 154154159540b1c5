// SPDX-License-Identifier: Apache-2.0

package blocks

import (
	"context"
	"net/netip"
	"slices"
	"strings"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/ipam/claims"
	"github.com/weft-net/weft/internal/model"
)

// sync compares all that is known of a pool's blocks with the store.
func (fo *follower) sync(ctx context.Context, p *pool) error {
	all, err := store.Bounded(ctx, func(ctx context.Context) ([]store.Object, error) {
		return fo.cfg.Objects.List(ctx, store.AddressBlocks())
	})
	if err != nil {
		return store.Unreachable("list of blocks", err)
	}
	fo.mem.mu.Lock()
	clear(p.others)
	fo.registry.meetRivals(p, all)
	p.stale = true
	for _, b := range p.order {
		b.stale = true
	}
	fo.mem.mu.Unlock()
	for _, o := range all {
		spec, err := o.AddressBlock()
		if err != nil || spec.Pool != p.name {
			continue
		}
		fo.mem.mu.Lock()
		known := p.blocks[spec.CIDR] != nil
		fo.mem.mu.Unlock()
		ours := known && spec.Node == fo.cfg.Node || fo.namesakes.ours(spec) // of what is known, refresh finds out
		if !ours {
			fo.mem.mu.Lock()
			p.others[spec.CIDR] = spec
			fo.mem.mu.Unlock()
		}
		if ours && !known {
			if err := store.IgnoreConflict(fo.affinity.adopt(ctx, p, o, spec)); err != nil {
				return err
			}
		}
		if spec.Node != fo.cfg.Node {
			if err := fo.adoptSingles(ctx, p, o); err != nil {
				return err
			}
		}
	}
	fo.mem.mu.Lock()
	p.tell()
	fo.mem.mu.Unlock()
	return nil
}

// adoptSingles takes ceded addresses into use that the store says are ours, and that this engine does not know.
func (fo *follower) adoptSingles(ctx context.Context, p *pool, o store.Object) error {
	spec, err := o.AddressBlock()
	if err != nil {
		return nil //nolint:nilerr // an object that is not understood is nobody's
	}
	for a, with := range spec.Ceded {
		mine := len(with) > len(fo.cfg.Node) && with[:len(fo.cfg.Node)+1] == fo.cfg.Node+"/"
		fo.mem.mu.Lock()
		known := p.blocks[netip.PrefixFrom(a, a.BitLen())] != nil
		fo.mem.mu.Unlock()
		if !mine || known || with == fo.cfg.Node+"/" && !fo.mem.isHeld(p, a) ||
			fo.namesakes.strange(machineOf(with), thing(p.name, netip.PrefixFrom(a, a.BitLen())), with) {
			continue
		}
		fo.affinity.flush(ctx, fo.mem.unheld(netip.PrefixFrom(a, a.BitLen())))
		if err := fo.affinity.promises(ctx, p, netip.PrefixFrom(a, a.BitLen())); err != nil {
			return err
		}
		if _, err := fo.affinity.grab(ctx, p, a, claims.In(with), o, spec); err != nil {
			return err
		}
		fo.kick.Notify() // one after the other: the object has another version now
		fo.mem.mu.Lock()
		fo.mem.synced = false
		fo.mem.mu.Unlock()
		return nil
	}
	return nil
}

// unknownSingle tells whether the store says that an address of another node's block was ceded to this node, and this
// engine does not know; the caller holds the lock.
func (fo *follower) unknownSingle(p *pool, spec model.AddressBlock) bool {
	for a, with := range spec.Ceded {
		claim, ours := strings.CutPrefix(with, fo.cfg.Node+"/")
		if ours && claim != "" && spec.Node != fo.cfg.Node && p.blocks[netip.PrefixFrom(a, a.BitLen())] == nil {
			return true
		}
	}
	return false
}

// freshen reads what is known to be out of date.
func (fo *follower) freshen(ctx context.Context, p *pool) error {
	fo.mem.mu.Lock()
	stale := p.stale
	p.stale = false
	blocks := slices.DeleteFunc(slices.Clone(p.order), func(b *block) bool {
		return !b.stale && b.stands != lost && len(b.away) <= len(b.spec.Ceded)
	})
	fo.mem.mu.Unlock()
	if stale {
		if err := fo.registry.readPool(ctx, p); err != nil {
			fo.mem.mu.Lock()
			p.stale = true
			fo.mem.mu.Unlock()
			return err
		}
	}
	for _, b := range blocks {
		fo.mem.mu.Lock()
		b.stale = false
		fo.mem.mu.Unlock()
		there, err := fo.affinity.refresh(ctx, p, b)
		if err == nil && there && !b.single() && b.stands == owned && len(b.away) > len(b.spec.Ceded) {
			err = fo.affinity.renew(ctx, p, b) // a cession whose outcome nobody knows: now it cannot happen any more
		}
		if err != nil {
			fo.mem.mu.Lock()
			b.stale = true
			fo.mem.mu.Unlock()
			return err
		}
	}
	return nil
}
