// SPDX-License-Identifier: Apache-2.0

package blocks

import (
	"context"
	"errors"
	"net/netip"
	"strings"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/ipam/addrspan"
	"github.com/weft-net/weft/internal/ipam/claimindex"
	"github.com/weft-net/weft/internal/ipam/claims"
	"github.com/weft-net/weft/internal/ipam/duplicatenode"
	"github.com/weft-net/weft/internal/ipam/poolconf"
	"github.com/weft-net/weft/internal/ipam/poolrequest"
	"github.com/weft-net/weft/internal/model"
)

// affinity manages the blocks that are assigned to this node: it claims, renews and releases them.
type affinity struct {
	cfg        *Config
	clock      *clock
	state      *nodeState
	duplicates *duplicatenode.Detector
	journal    *journalFile
	registry   *registry
	requests   *poolrequest.Client
	claimed    *claimindex.Index
}

// lockPool takes the pool's claim lock, and makes sure that the pool has the want's addresses.
func (af *affinity) lockPool(ctx context.Context, w poolconf.Want) (*pool, func(), error) {
	if af.cfg.Objects == nil {
		return nil, nil, model.Errorf(model.CodeNotAvailable, "start the agent with --store-dir or with a cluster",
			"%s: addresses of a pool need a datastore, and this agent has none", w.Field)
	}
	af.state.mu.Lock()
	p := af.state.poolLocked(w.Pool)
	af.state.mu.Unlock()
	select {
	case p.claimLock <- struct{}{}:
	case <-ctx.Done():
		return nil, nil, model.Errorf(model.CodeTryAgain, "", "%s: waiting for others that claim addresses: %w",
			w.Field, ctx.Err())
	}
	release := func() { <-p.claimLock }
	if err := af.cover(ctx, p, w); err != nil {
		release()
		return nil, nil, err
	}
	return p, release, nil
}

// claimBlock claims a block; false if another node has it.
func (af *affinity) claimBlock(ctx context.Context, p *pool, cidr netip.Prefix) (bool, error) {
	claim, err := af.registry.newClaim()
	if err != nil {
		return false, err
	}
	spec := model.AddressBlock{Pool: p.name, CIDR: cidr, Node: af.cfg.Node, MachineID: af.cfg.MachineID, Claim: claim}
	o, err := store.AddressBlockObject(store.Object{}, spec)
	if err != nil {
		return false, err
	}
	if err := af.cfg.Failpoint.At("before create"); err != nil {
		return false, err
	}
	got, err := store.WithTimeout(ctx, func(ctx context.Context) (store.Object, error) {
		return af.cfg.Objects.Create(ctx, store.AddressBlocks(), o)
	})
	switch {
	case errors.Is(err, store.ErrExists):
		return false, af.readOwner(ctx, p, cidr)
	case errors.Is(err, store.ErrNotFound):
		return false, model.Errorf(model.CodeTryAgain, "are the definitions of deploy/crds installed?",
			"block %s cannot be claimed: %w", cidr, err)
	case err != nil:
		// The outcome is unknown. If the object exists, or appears later, Run adopts it with a new claim.
		return false, store.Unreachable("claim of block "+cidr.String(), err)
	}
	if err := af.cfg.Failpoint.At("after create"); err != nil {
		return false, err
	}
	if yields, err := af.registry.releaseConflicting(ctx, p, got, cidr); yields || err != nil {
		return false, err
	}
	if err := af.markClaimed(ctx, p, cidr, true); err != nil {
		return false, err
	}
	af.addBlock(p, got, spec)
	return true, af.journal.save()
}

// addBlock starts allocating from a block.
func (af *affinity) addBlock(p *pool, o store.Object, spec model.AddressBlock) {
	af.state.mu.Lock()
	defer af.state.mu.Unlock()
	delete(p.remote, spec.CIDR)
	b := &block{
		cidr: spec.CIDR, parent: spec.CIDR, claim: spec.Claim, state: owned, lent: map[netip.Addr]bool{},
		touched: af.clock.now(),
	}
	if was := p.blocks[spec.CIDR]; was != nil {
		b.spec, b.offers = was.spec, was.offers
	}
	b.updateLocked(o, spec, af.clock.now())
	for a := range spec.Lent {
		b.lent[a] = true
	}
	p.setBlockLocked(spec.CIDR, b)
	af.cfg.Log.Info("agent claimed a block", "pool", p.name, "block", spec.CIDR.String())
}

// readOwner reads which node has a block, and adopts it if it is this one.
func (af *affinity) readOwner(ctx context.Context, p *pool, cidr netip.Prefix) error {
	o, spec, err := af.registry.readBlock(ctx, p.name, cidr)
	if errors.Is(err, store.ErrNotFound) {
		return nil // it was deleted meanwhile
	}
	if err != nil {
		return err
	}
	ours := af.duplicates.Owns(spec)
	af.state.mu.Lock()
	unknown := p.blocks[cidr] == nil
	if !ours {
		p.remote[cidr] = spec
	}
	af.state.mu.Unlock()
	if ours && unknown {
		return af.adopt(ctx, p, o, spec)
	}
	return nil
}

// adopt takes a block into use that the datastore assigns to this node and that this engine does not know: the answer
// to a claim, or the journal, was lost. The new claim makes delayed requests about the old one fail.
func (af *affinity) adopt(ctx context.Context, p *pool, o store.Object, spec model.AddressBlock) error {
	if unheld := af.state.unheld(spec.CIDR); len(unheld) == addrspan.Size(spec.CIDR) && len(spec.Lent) == 0 {
		if yields, err := af.registry.releaseConflicting(ctx, p, o, spec.CIDR); yields || err != nil {
			return err
		}
	}
	if err := af.markClaimed(ctx, p, spec.CIDR, false); err != nil {
		return err
	}
	got, spec, err := af.registry.updateBlock(ctx, o, spec, func(s *model.AddressBlock, claim string) { s.Claim = claim })
	if err != nil {
		return err
	}
	af.flush(ctx, af.state.unheld(spec.CIDR)) // what was allocated from it is unknown
	af.addBlock(p, got, spec)
	af.state.pauseBlock(p, spec.CIDR)
	return af.journal.save()
}

// refresh reads one of this node's blocks; false if this node no longer has it, which is logged unless the node
// released it.
func (af *affinity) refresh(ctx context.Context, p *pool, b *block) (bool, error) {
	o, spec, err := af.registry.readBlock(ctx, p.name, b.parent)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return false, err
	}
	ours := err == nil && spec.Node == af.cfg.Node && spec.Claim == b.claim
	if b.borrowed() {
		ours = err == nil && spec.Lent[b.cidr.Addr()] == af.cfg.Node+"/"+b.claim
	}
	if ours {
		af.state.mu.Lock()
		if b.object.Version != o.Version {
			p.notifyLocked()
		}
		b.updateLocked(o, spec, af.clock.now())
		for a := range spec.Lent {
			b.lent[a] = !b.borrowed()
		}
		found := b.state == lost
		af.state.mu.Unlock()
		if found { // an API server that was starting may have missed it; the new claim proves ownership
			return true, af.recover(ctx, p, b)
		}
		return true, nil
	}
	if b.state == releasing {
		return false, af.forget(p, b)
	}
	if err == nil && !b.borrowed() && spec.Node == af.cfg.Node && !af.duplicates.OwnershipLost(b.cidr, spec) {
		return true, af.adopt(ctx, p, o, spec) // ours: the answer was lost
	}
	if with := spec.Lent[b.cidr.Addr()]; err == nil && b.borrowed() &&
		af.duplicates.ClaimedHere(p.name, b.cidr, with) {
		_, err := af.claimBorrowed(ctx, p, b.cidr.Addr(), claims.OfEntry(with), o, spec) // the same for a borrowed address
		return true, err
	}
	af.state.mu.Lock()
	if err == nil && p.transferred(b, spec, af.cfg.Node) {
		af.state.mu.Unlock()
		return false, af.forget(p, b)
	}
	first := b.state != lost
	b.state = lost
	af.state.mu.Unlock()
	restore := func() error { return af.rewrite(ctx, p, b) }
	if err == nil {
		restore = func() error { return af.borrowHeld(ctx, p, b, o, spec) }
	}
	if err := restore(); err != nil {
		return false, err
	}
	if first {
		af.cfg.Log.Error(
			"agent lost ownership of a block; it stops allocating from it",
			"pool",
			p.name,
			"block",
			b.cidr.String(),
			"node",
			spec.Node,
		)
		return false, af.journal.save()
	}
	return false, nil
}

// renew writes a block with a new claim, which makes a delete that is under way fail.
func (af *affinity) renew(ctx context.Context, p *pool, b *block) error {
	o, spec, err := af.registry.updateBlock(
		ctx,
		b.object,
		b.spec,
		func(s *model.AddressBlock, claim string) { s.Claim = claim },
	)
	if err != nil {
		return store.IgnoreConflict(err)
	}
	af.addBlock(p, o, spec)
	return af.journal.save()
}

// release deletes a block's object, or returns a borrowed address.
func (af *affinity) release(ctx context.Context, p *pool, b *block) error {
	there, err := af.refresh(ctx, p, b)
	if err != nil || !there {
		return err
	}
	if b.borrowed() {
		_, _, err := af.registry.updateBlock(ctx, b.object, b.spec, func(s *model.AddressBlock, _ string) {
			a, to := b.cidr.Addr(), ""
			if node, _, _ := strings.Cut(s.Requested[a], claims.EntrySeparator); node != "" {
				to = node + "/"
			}
			s.Lent, s.Requested = withEntry(s.Lent, a, to), withoutEntry(s.Requested, a)
		})
		if err != nil {
			return store.IgnoreConflict(err) // retried later
		}
		return af.forget(p, b)
	}
	for a, with := range b.spec.Lent {
		if !b.reclaimable(a, with, af.clock.now()) {
			return af.renew(ctx, p, b) // a node borrowed an address: keep the block
		}
	}
	if err := af.cfg.Failpoint.At("before delete"); err != nil {
		return err
	}
	if len(b.spec.Lent) == 0 { // an address that was offered to another node may have been for a claim
		af.claimed.WillRelease(b.claim)
	}
	_, err = store.WithTimeout(ctx, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, af.cfg.Objects.Delete(ctx, store.AddressBlocks(), b.object.Key, b.object.Version)
	})
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return store.IgnoreConflict(store.Unreachable("return of block "+b.cidr.String(), err))
	}
	if err := af.cfg.Failpoint.At("after delete"); err != nil {
		return err
	}
	return af.forget(p, b)
}

// forget removes a block from the state and the journal.
func (af *affinity) forget(p *pool, b *block) error {
	af.state.mu.Lock()
	if p.blocks[b.cidr] == b {
		p.setBlockLocked(b.cidr, nil)
	}
	if !b.borrowed() {
		delete(p.remote, b.cidr)
	}
	af.state.mu.Unlock()
	af.cfg.Log.Info("agent released a block", "pool", p.name, "block", b.cidr.String())
	return af.journal.save()
}

// recover takes a block or a borrowed address into use again that was considered lost.
func (af *affinity) recover(ctx context.Context, p *pool, b *block) error {
	if !b.borrowed() {
		return af.renew(ctx, p, b)
	}
	_, err := af.claimBorrowed(ctx, p, b.cidr.Addr(), claims.OfEntry(b.claim), b.object, b.spec)
	return err
}

// markClaimed records which addresses of a block that is about to be this node's belong to claims, in the journal too:
// the node that knew it may never come back. created: this node has just created the block's object.
func (af *affinity) markClaimed(ctx context.Context, p *pool, cidr netip.Prefix, created bool) error {
	found, known := af.claimed.Find(cidr)
	if !created || !known {
		var err error
		if found, err = af.claimed.List(ctx, af.cfg.Objects, af.state.isWatching, cidr); err != nil {
			return err
		}
	}
	for _, c := range found {
		af.state.markClaim(p, c.Addr, c.ClaimID)
	}
	return af.journal.saveIfUnsaved()
}
