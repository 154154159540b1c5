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

// sync compares the state of a pool's blocks with the datastore.
func (fo *reconciler) sync(ctx context.Context, p *pool) error {
	all, err := store.WithTimeout(ctx, func(ctx context.Context) ([]store.Object, error) {
		return fo.cfg.Objects.List(ctx, store.AddressBlocks())
	})
	if err != nil {
		return store.Unreachable("list of blocks", err)
	}
	fo.state.mu.Lock()
	p.noteVanishedLocked(all, fo.clock.now())
	clear(p.remote)
	fo.registry.setOverlappingLocked(p, all)
	p.stale = true
	for _, b := range p.order {
		b.stale = true
	}
	fo.state.mu.Unlock()
	for _, o := range all {
		spec, err := o.AddressBlock()
		if err != nil || spec.Pool != p.name {
			continue
		}
		fo.state.mu.Lock()
		known := p.blocks[spec.CIDR] != nil
		fo.state.mu.Unlock()
		ours := known && spec.Node == fo.cfg.Node || fo.duplicates.Owns(spec) // refresh checks known blocks
		if !ours {
			fo.state.mu.Lock()
			p.remote[spec.CIDR] = spec
			fo.state.mu.Unlock()
		}
		if ours && !known {
			if err := store.IgnoreConflict(fo.affinity.adopt(ctx, p, o, spec)); err != nil {
				return err
			}
		}
		if spec.Node != fo.cfg.Node {
			if err := fo.adoptBorrowed(ctx, p, o); err != nil {
				return err
			}
		}
	}
	fo.state.mu.Lock()
	p.notifyLocked()
	fo.state.mu.Unlock()
	return nil
}

// adoptBorrowed takes addresses into use that the datastore lends to this node, and that this engine does not know.
func (fo *reconciler) adoptBorrowed(ctx context.Context, p *pool, o store.Object) error {
	spec, err := o.AddressBlock()
	if err != nil {
		return nil //nolint:nilerr // an invalid object belongs to no node
	}
	for a, with := range spec.Lent {
		own := len(with) > len(fo.cfg.Node) && with[:len(fo.cfg.Node)+1] == fo.cfg.Node+"/"
		fo.state.mu.Lock()
		known := p.blocks[netip.PrefixFrom(a, a.BitLen())] != nil
		fo.state.mu.Unlock()
		if !own || known || with == fo.cfg.Node+"/" && !fo.state.isHeld(p, a) ||
			fo.duplicates.LentToDuplicate(p.name, a, with) {
			continue
		}
		fo.affinity.flush(ctx, fo.state.unheld(netip.PrefixFrom(a, a.BitLen())))
		if err := fo.affinity.markClaimed(ctx, p, netip.PrefixFrom(a, a.BitLen()), false); err != nil {
			return err
		}
		if _, err := fo.affinity.claimBorrowed(ctx, p, a, claims.OfEntry(with), o, spec); err != nil {
			return err
		}
		fo.kick.Notify() // one per pass: the object has a new version now
		fo.state.mu.Lock()
		fo.state.synced = false
		fo.state.mu.Unlock()
		return nil
	}
	return nil
}

// unknownBorrowedLocked reports whether another node's block lends an address to this node that this engine does not
// know.
func (fo *reconciler) unknownBorrowedLocked(p *pool, spec model.AddressBlock) bool {
	for a, with := range spec.Lent {
		claim, ours := strings.CutPrefix(with, fo.cfg.Node+"/")
		if ours && claim != "" && spec.Node != fo.cfg.Node && p.blocks[netip.PrefixFrom(a, a.BitLen())] == nil {
			return true
		}
	}
	return false
}

// refreshStale reads the objects that have changed.
func (fo *reconciler) refreshStale(ctx context.Context, p *pool) error {
	fo.state.mu.Lock()
	stale := p.stale
	p.stale = false
	blocks := slices.DeleteFunc(slices.Clone(p.order), func(b *block) bool {
		return !b.stale && b.state != lost && len(b.lent) <= len(b.spec.Lent)
	})
	fo.state.mu.Unlock()
	if stale {
		if err := fo.registry.readPool(ctx, p); err != nil {
			fo.state.mu.Lock()
			p.stale = true
			fo.state.mu.Unlock()
			return err
		}
	}
	for _, b := range blocks {
		fo.state.mu.Lock()
		b.stale = false
		fo.state.mu.Unlock()
		there, err := fo.affinity.refresh(ctx, p, b)
		if err == nil && there && !b.borrowed() && b.state == owned && len(b.lent) > len(b.spec.Lent) {
			err = fo.affinity.renew(ctx, p, b) // a loan whose outcome is unknown: the new claim makes it fail
		}
		if err != nil {
			fo.state.mu.Lock()
			b.stale = true
			fo.state.mu.Unlock()
			return err
		}
	}
	return nil
}
