// SPDX-License-Identifier: Apache-2.0

package blocks

import (
	"context"
	"errors"
	"net/netip"
	"strings"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/ipam/claims"
	"github.com/weft-net/weft/internal/model"
)

// affinity is which blocks are this node's: it claims them, takes them up again, and gives them up.
type affinity struct {
	cfg       *Config
	clock     *clock
	mem       *memory
	namesakes *namesakes
	journal   *journalFile
	registry  *registry
	requests  *requests
}

// alone takes the turn to claim for a pool, with the pool as the store has it.
func (af *affinity) alone(ctx context.Context, w want) (*pool, func(), error) {
	if af.cfg.Objects == nil {
		return nil, nil, model.Faultf(model.CodeNotAvailable, "start the agent with --store-dir or with a cluster",
			"%s: addresses of a pool need the cluster's store, and this agent has none", w.field)
	}
	af.mem.mu.Lock()
	p := af.mem.pool(w.pool)
	af.mem.mu.Unlock()
	select {
	case p.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, nil, model.Faultf(model.CodeTryAgain, "", "%s: waiting for others that claim addresses: %w",
			w.field, ctx.Err())
	}
	release := func() { <-p.turn }
	if err := af.cover(ctx, p, w); err != nil {
		release()
		return nil, nil, err
	}
	return p, release, nil
}

// create claims a block; false when somebody else has it.
func (af *affinity) create(ctx context.Context, p *pool, cidr netip.Prefix) (bool, error) {
	claim, err := af.registry.number()
	if err != nil {
		return false, err
	}
	spec := model.AddressBlock{Pool: p.name, CIDR: cidr, Node: af.cfg.Node, Machine: af.cfg.Machine, Claim: claim}
	o, err := store.AddressBlockObject(store.Object{}, spec)
	if err != nil {
		return false, err
	}
	if err := af.cfg.Step.At("before create"); err != nil {
		return false, err
	}
	got, err := store.Bounded(ctx, func(ctx context.Context) (store.Object, error) {
		return af.cfg.Objects.Create(ctx, store.AddressBlocks(), o)
	})
	switch {
	case errors.Is(err, store.ErrExists):
		return false, af.meet(ctx, p, cidr)
	case errors.Is(err, store.ErrNotFound):
		return false, model.Faultf(model.CodeTryAgain, "are the definitions of deploy/crds installed?",
			"block %s cannot be claimed: %w", cidr, err)
	case err != nil:
		// It may be there or come yet. Then Run finds it, and it is taken into use with a new claim.
		return false, store.Unreachable("claim of block "+cidr.String(), err)
	}
	if err := af.cfg.Step.At("after create"); err != nil {
		return false, err
	}
	if yields, err := af.registry.yield(ctx, p, got, cidr); yields || err != nil {
		return false, err
	}
	if err := af.promises(ctx, p, cidr); err != nil {
		return false, err
	}
	af.own(p, got, spec)
	return true, af.journal.save()
}

// own takes a block into use.
func (af *affinity) own(p *pool, o store.Object, spec model.AddressBlock) {
	af.mem.mu.Lock()
	defer af.mem.mu.Unlock()
	delete(p.others, spec.CIDR)
	b := &block{
		cidr: spec.CIDR, parent: spec.CIDR, claim: spec.Claim, stands: owned, away: map[netip.Addr]bool{},
		touched: af.clock.now(),
	}
	if was := p.blocks[spec.CIDR]; was != nil {
		b.spec, b.offers = was.spec, was.offers
	}
	b.learn(o, spec, af.clock.now())
	for a := range spec.Ceded {
		b.away[a] = true
	}
	p.put(spec.CIDR, b)
	af.cfg.Log.Info("block claimed", "pool", p.name, "block", spec.CIDR.String())
}

// meet learns whose block it is.
func (af *affinity) meet(ctx context.Context, p *pool, cidr netip.Prefix) error {
	o, spec, err := af.registry.read(ctx, p.name, cidr)
	if errors.Is(err, store.ErrNotFound) {
		return nil // it went again
	}
	if err != nil {
		return err
	}
	ours := af.namesakes.ours(spec)
	af.mem.mu.Lock()
	unknown := p.blocks[cidr] == nil
	if !ours {
		p.others[cidr] = spec
	}
	af.mem.mu.Unlock()
	if ours && unknown {
		return af.adopt(ctx, p, o, spec)
	}
	return nil
}

// adopt takes a block into use that the store says is ours, and that this engine does not know: a claim whose answer
// was lost, or a lost journal. With the new claim, no late request about the old one counts.
func (af *affinity) adopt(ctx context.Context, p *pool, o store.Object, spec model.AddressBlock) error {
	if unheld := af.mem.unheld(spec.CIDR); len(unheld) == size(spec.CIDR) && len(spec.Ceded) == 0 {
		if yields, err := af.registry.yield(ctx, p, o, spec.CIDR); yields || err != nil {
			return err
		}
	}
	if err := af.promises(ctx, p, spec.CIDR); err != nil {
		return err
	}
	got, spec, err := af.registry.swap(ctx, o, spec, func(s *model.AddressBlock, claim string) { s.Claim = claim })
	if err != nil {
		return err
	}
	af.flush(ctx, af.mem.unheld(spec.CIDR)) // who knows what was given of it
	af.own(p, got, spec)
	return af.journal.save()
}

// refresh reads a block of ours; false when it is gone, which is told where it should not be.
func (af *affinity) refresh(ctx context.Context, p *pool, b *block) (bool, error) {
	o, spec, err := af.registry.read(ctx, p.name, b.parent)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return false, err
	}
	ours := err == nil && spec.Node == af.cfg.Node && spec.Claim == b.claim
	if b.single() {
		ours = err == nil && spec.Ceded[b.cidr.Addr()] == af.cfg.Node+"/"+b.claim
	}
	if ours {
		af.mem.mu.Lock()
		if b.object.Version != o.Version {
			p.tell()
		}
		b.learn(o, spec, af.clock.now())
		for a := range spec.Ceded {
			b.away[a] = !b.single()
		}
		found := b.stands == lost
		af.mem.mu.Unlock()
		if found { // a server that starts may have denied it; with a new claim it is ours for certain
			return true, af.recover(ctx, p, b)
		}
		return true, nil
	}
	if b.stands == releasing {
		return false, af.forget(p, b)
	}
	if err == nil && !b.single() && spec.Node == af.cfg.Node && !af.namesakes.usurped(b, spec) {
		return true, af.adopt(ctx, p, o, spec) // ours, by an answer that was lost
	}
	if with := spec.Ceded[b.cidr.Addr()]; err == nil && b.single() &&
		af.namesakes.claimedHere(thing(p.name, b.cidr), with) {
		_, err := af.grab(ctx, p, b.cidr.Addr(), claims.In(with), o, spec) // the same of a single address
		return true, err
	}
	af.mem.mu.Lock()
	if err == nil && p.movedOn(b, spec, af.cfg.Node) {
		af.mem.mu.Unlock()
		return false, af.forget(p, b)
	}
	first := b.stands != lost
	b.stands = lost
	af.mem.mu.Unlock()
	if first {
		af.cfg.Log.Error("block is ours no more: nothing is given from it", "pool", p.name, "block", b.cidr.String(),
			"node", spec.Node)
		return false, af.journal.save()
	}
	return false, nil
}

// renew takes a block whose return has begun into use again. The new claim makes sure that the return never happens.
func (af *affinity) renew(ctx context.Context, p *pool, b *block) error {
	o, spec, err := af.registry.swap(ctx, b.object, b.spec, func(s *model.AddressBlock, claim string) { s.Claim = claim })
	if err != nil {
		return store.IgnoreConflict(err)
	}
	af.own(p, o, spec)
	return af.journal.save()
}

// release asks the store to forget a claim.
func (af *affinity) release(ctx context.Context, p *pool, b *block) error {
	there, err := af.refresh(ctx, p, b)
	if err != nil || !there {
		return err
	}
	if b.single() {
		_, _, err := af.registry.swap(ctx, b.object, b.spec, func(s *model.AddressBlock, _ string) {
			a, to := b.cidr.Addr(), ""
			if node, _, _ := strings.Cut(s.Asked[a], claims.For); node != "" {
				to = node + "/"
			}
			s.Ceded, s.Asked = having(s.Ceded, a, to), lacking(s.Asked, a)
		})
		if err != nil {
			return store.IgnoreConflict(err) // once more, later
		}
		return af.forget(p, b)
	}
	for a, with := range b.spec.Ceded {
		if !b.nobodys(a, with, af.clock.now()) {
			return af.renew(ctx, p, b) // somebody took a ceded address: the block has to stay
		}
	}
	if err := af.cfg.Step.At("before delete"); err != nil {
		return err
	}
	_, err = store.Bounded(ctx, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, af.cfg.Objects.Delete(ctx, store.AddressBlocks(), b.object.Key, b.object.Version)
	})
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return store.IgnoreConflict(store.Unreachable("return of block "+b.cidr.String(), err))
	}
	if err := af.cfg.Step.At("after delete"); err != nil {
		return err
	}
	return af.forget(p, b)
}

// forget takes a block out of memory and journal.
func (af *affinity) forget(p *pool, b *block) error {
	af.mem.mu.Lock()
	if p.blocks[b.cidr] == b {
		p.put(b.cidr, nil)
	}
	if !b.single() {
		delete(p.others, b.cidr)
	}
	af.mem.mu.Unlock()
	af.cfg.Log.Info("block returned", "pool", p.name, "block", b.cidr.String())
	return af.journal.save()
}

// recover takes a block, or a ceded address, into use that was thought to be lost.
func (af *affinity) recover(ctx context.Context, p *pool, b *block) error {
	if !b.single() {
		return af.renew(ctx, p, b)
	}
	_, err := af.grab(ctx, p, b.cidr.Addr(), claims.In(b.claim), b.object, b.spec)
	return err
}
