// SPDX-License-Identifier: Apache-2.0

package blocks

import (
	"context"
	"errors"
	"net/netip"
	"time"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/model"
)

// obtain gives an address that this node has not got yet: it claims a block, takes what others ceded, and at last asks them.
func (ob *obtainer) obtain(ctx context.Context, w want, h holder, patience time.Duration) (netip.Addr, error) {
	ctx, cancel := context.WithTimeout(ctx, patience+time.Second) // a store that is silent is no reason to wait longer
	defer cancel()
	p, release, err := ob.affinity.alone(ctx, w)
	if err != nil {
		return netip.Addr{}, err
	}
	defer func() { release() }()
	deadline := ob.cfg.After(patience)
	hungry := false
	defer func() {
		if hungry {
			ob.sated(p)
		}
	}()
	for {
		ob.mem.mu.Lock()
		changed := p.changed
		ob.mem.mu.Unlock()
		if a, ok, err := ob.fromMemory(ctx, w, h, false); ok || err != nil {
			return a, err
		}
		got, err := ob.more(ctx, p, w)
		if err != nil {
			return netip.Addr{}, err
		}
		if got {
			continue
		}
		// Nothing is free. Better an address that rests than none.
		if a, ok, err := ob.fromMemory(ctx, w, h, true); ok || err != nil {
			return a, err
		}
		if !hungry && !w.addr.IsValid() {
			hungry = true
			ob.mem.mu.Lock()
			p.hungry++
			ob.mem.mu.Unlock()
			if err := ob.registry.say(ctx, p, true); err != nil {
				return netip.Addr{}, err
			}
		}
		release() // others of this node need not wait for it
		release = func() {}
		select {
		case <-changed:
		case <-deadline:
			return ob.atLast(ctx, p, w, h)
		case <-ctx.Done():
			return netip.Addr{}, model.Faultf(model.CodeTryAgain, "", "%s: waiting for an address: %w", w.field, ctx.Err())
		}
		if _, release, err = ob.affinity.alone(ctx, w); err != nil {
			release = func() {}
			return netip.Addr{}, err
		}
	}
}

// fetch gives an address of a block that nobody had, or that was ceded to anybody; false when there is none to be had. Nobody
// is asked to give something back.
func (ob *obtainer) fetch(ctx context.Context, w want, h holder) (netip.Addr, bool, error) {
	ctx, cancel := context.WithTimeout(ctx, ob.cfg.Patience+time.Second)
	defer cancel()
	p, release, err := ob.affinity.alone(ctx, w)
	if err != nil {
		return netip.Addr{}, false, err
	}
	defer release()
	for {
		if a, ok, err := ob.fromMemory(ctx, w, h, false); ok || err != nil {
			return a, ok, err
		}
		if got, err := ob.more(ctx, p, w); !got || err != nil {
			return netip.Addr{}, false, err
		}
	}
}

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
		return nil, nil, model.Faultf(model.CodeTryAgain, "", "%s: waiting for others that claim addresses: %w", w.field, ctx.Err())
	}
	release := func() { <-p.turn }
	if err := af.cover(ctx, p, w); err != nil {
		release()
		return nil, nil, err
	}
	return p, release, nil
}

// more gets this node a block for a want, or a single address; false when there is none to be had.
func (ob *obtainer) more(ctx context.Context, p *pool, w want) (bool, error) {
	if got, err := ob.affinity.takeBack(ctx, p, w); got || err != nil {
		return got, err
	}
	if w.addr.IsValid() {
		return ob.certain(ctx, p, w)
	}
	if got, err := ob.wholeBlock(ctx, p, w); got || err != nil {
		return got, err
	}
	if got, err := ob.takeCeded(ctx, p, w); got || err != nil {
		return got, err
	}
	return ob.takeOver(ctx, p, w)
}

// wholeBlock claims a block for a want; false when nobody has left one.
func (ob *obtainer) wholeBlock(ctx context.Context, p *pool, w want) (bool, error) {
	const tries = 32
	for try := range tries {
		cidr, ok, err := ob.mem.candidate(p, w, try > 1)
		if err != nil {
			return false, err
		}
		if ok {
			if got, err := ob.affinity.create(ctx, p, cidr); got || err != nil {
				return got, err
			}
		} else if try > 0 {
			return false, nil
		}
		if try == 0 { // what is known is not up to date, or it is not to be believed before somebody was asked
			if err := ob.registry.lookUnlessLive(ctx, p); err != nil {
				return false, err
			}
		}
	}
	return false, nil
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
	if err := af.cfg.step("before create"); err != nil {
		return false, err
	}
	got, err := Bounded(ctx, func(ctx context.Context) (store.Object, error) {
		return af.cfg.Objects.Create(ctx, store.AddressBlocks(), o)
	})
	switch {
	case errors.Is(err, store.ErrExists):
		return false, af.meet(ctx, p, cidr)
	case errors.Is(err, store.ErrNotFound):
		return false, model.Faultf(model.CodeTryAgain, "are the definitions of deploy/crds installed?", "block %s cannot be claimed: %w", cidr, err)
	case err != nil:
		// It may be there or come yet. Then Run finds it, and it is taken into use with a new claim.
		return false, Unreachable("claim of block "+cidr.String(), err)
	}
	if err := af.cfg.step("after create"); err != nil {
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
	b := &block{cidr: spec.CIDR, parent: spec.CIDR, claim: spec.Claim, stands: owned, away: map[netip.Addr]bool{}, touched: af.clock.now()}
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

// adopt takes a block into use that the store says is ours, and that this engine does not know: a claim whose answer was
// lost, or a lost journal. With the new claim, no late request about the old one counts.
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
