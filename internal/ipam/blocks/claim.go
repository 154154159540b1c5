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
func (e *Engine) obtain(ctx context.Context, w want, h holder, patience time.Duration) (netip.Addr, error) {
	ctx, cancel := context.WithTimeout(ctx, patience+time.Second) // a store that is silent is no reason to wait longer
	defer cancel()
	p, release, err := e.alone(ctx, w)
	if err != nil {
		return netip.Addr{}, err
	}
	defer func() { release() }()
	deadline := e.cfg.After(patience)
	hungry := false
	defer func() {
		if hungry {
			e.sated(p)
		}
	}()
	for {
		e.mu.Lock()
		changed := p.changed
		e.mu.Unlock()
		if a, ok, err := e.fromMemory(ctx, w, h, false); ok || err != nil {
			return a, err
		}
		got, err := e.more(ctx, p, w)
		if err != nil {
			return netip.Addr{}, err
		}
		if got {
			continue
		}
		// Nothing is free. Better an address that rests than none.
		if a, ok, err := e.fromMemory(ctx, w, h, true); ok || err != nil {
			return a, err
		}
		if !hungry && !w.addr.IsValid() {
			hungry = true
			e.mu.Lock()
			p.hungry++
			e.mu.Unlock()
			if err := e.say(ctx, p, true); err != nil {
				return netip.Addr{}, err
			}
		}
		release() // others of this node need not wait for it
		release = func() {}
		select {
		case <-changed:
		case <-deadline:
			return e.atLast(ctx, p, w, h)
		case <-ctx.Done():
			return netip.Addr{}, model.Faultf(model.CodeTryAgain, "", "%s: waiting for an address: %w", w.field, ctx.Err())
		}
		if _, release, err = e.alone(ctx, w); err != nil {
			release = func() {}
			return netip.Addr{}, err
		}
	}
}

// fetch gives an address of a block that nobody had, or that was ceded to anybody; false when there is none to be had. Nobody
// is asked to give something back.
func (e *Engine) fetch(ctx context.Context, w want, h holder) (netip.Addr, bool, error) {
	ctx, cancel := context.WithTimeout(ctx, e.cfg.Patience+time.Second)
	defer cancel()
	p, release, err := e.alone(ctx, w)
	if err != nil {
		return netip.Addr{}, false, err
	}
	defer release()
	for {
		if a, ok, err := e.fromMemory(ctx, w, h, false); ok || err != nil {
			return a, ok, err
		}
		if got, err := e.more(ctx, p, w); !got || err != nil {
			return netip.Addr{}, false, err
		}
	}
}

// alone takes the turn to claim for a pool, with the pool as the store has it.
func (e *Engine) alone(ctx context.Context, w want) (*pool, func(), error) {
	if e.cfg.Objects == nil {
		return nil, nil, model.Faultf(model.CodeNotAvailable, "start the agent with --store-dir or with a cluster",
			"%s: addresses of a pool need the cluster's store, and this agent has none", w.field)
	}
	e.mu.Lock()
	p := e.pool(w.pool)
	e.mu.Unlock()
	select {
	case p.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, nil, model.Faultf(model.CodeTryAgain, "", "%s: waiting for others that claim addresses: %w", w.field, ctx.Err())
	}
	release := func() { <-p.turn }
	if err := e.cover(ctx, p, w); err != nil {
		release()
		return nil, nil, err
	}
	return p, release, nil
}

// more gets this node a block for a want, or a single address; false when there is none to be had.
func (e *Engine) more(ctx context.Context, p *pool, w want) (bool, error) {
	if got, err := e.takeBack(ctx, p, w); got || err != nil {
		return got, err
	}
	if w.addr.IsValid() {
		return e.certain(ctx, p, w)
	}
	if got, err := e.wholeBlock(ctx, p, w); got || err != nil {
		return got, err
	}
	if got, err := e.takeCeded(ctx, p, w); got || err != nil {
		return got, err
	}
	return e.takeOver(ctx, p, w)
}

// wholeBlock claims a block for a want; false when nobody has left one.
func (e *Engine) wholeBlock(ctx context.Context, p *pool, w want) (bool, error) {
	const tries = 32
	for try := range tries {
		cidr, ok, err := e.candidate(p, w, try > 1)
		if err != nil {
			return false, err
		}
		if ok {
			if got, err := e.create(ctx, p, cidr); got || err != nil {
				return got, err
			}
		} else if try > 0 {
			return false, nil
		}
		if try == 0 { // what is known is not up to date, or it is not to be believed before somebody was asked
			if err := e.lookUnlessLive(ctx, p); err != nil {
				return false, err
			}
		}
	}
	return false, nil
}

// create claims a block; false when somebody else has it.
func (e *Engine) create(ctx context.Context, p *pool, cidr netip.Prefix) (bool, error) {
	claim, err := e.number()
	if err != nil {
		return false, err
	}
	spec := model.AddressBlock{Pool: p.name, CIDR: cidr, Node: e.cfg.Node, Machine: e.cfg.Machine, Claim: claim}
	o, err := store.AddressBlockObject(store.Object{}, spec)
	if err != nil {
		return false, err
	}
	if err := e.step("before create"); err != nil {
		return false, err
	}
	got, err := Bounded(ctx, func(ctx context.Context) (store.Object, error) {
		return e.cfg.Objects.Create(ctx, store.AddressBlocks(), o)
	})
	switch {
	case errors.Is(err, store.ErrExists):
		return false, e.meet(ctx, p, cidr)
	case errors.Is(err, store.ErrNotFound):
		return false, model.Faultf(model.CodeTryAgain, "are the definitions of deploy/crds installed?", "block %s cannot be claimed: %w", cidr, err)
	case err != nil:
		// It may be there or come yet. Then Run finds it, and it is taken into use with a new claim.
		return false, Unreachable("claim of block "+cidr.String(), err)
	}
	if err := e.step("after create"); err != nil {
		return false, err
	}
	if yields, err := e.yield(ctx, p, got, cidr); yields || err != nil {
		return false, err
	}
	if err := e.promises(ctx, p, cidr); err != nil {
		return false, err
	}
	e.own(p, got, spec)
	return true, e.save()
}

// own takes a block into use.
func (e *Engine) own(p *pool, o store.Object, spec model.AddressBlock) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(p.others, spec.CIDR)
	b := &block{cidr: spec.CIDR, parent: spec.CIDR, claim: spec.Claim, stands: owned, away: map[netip.Addr]bool{}, touched: e.now()}
	if was := p.blocks[spec.CIDR]; was != nil {
		b.spec, b.offers = was.spec, was.offers
	}
	b.learn(o, spec, e.now())
	for a := range spec.Ceded {
		b.away[a] = true
	}
	p.put(spec.CIDR, b)
	e.cfg.Log.Info("block claimed", "pool", p.name, "block", spec.CIDR.String())
}

// meet learns whose block it is.
func (e *Engine) meet(ctx context.Context, p *pool, cidr netip.Prefix) error {
	o, spec, err := e.read(ctx, p.name, cidr)
	if errors.Is(err, store.ErrNotFound) {
		return nil // it went again
	}
	if err != nil {
		return err
	}
	ours := e.ours(spec)
	e.mu.Lock()
	unknown := p.blocks[cidr] == nil
	if !ours {
		p.others[cidr] = spec
	}
	e.mu.Unlock()
	if ours && unknown {
		return e.adopt(ctx, p, o, spec)
	}
	return nil
}

// adopt takes a block into use that the store says is ours, and that this engine does not know: a claim whose answer was
// lost, or a lost journal. With the new claim, no late request about the old one counts.
func (e *Engine) adopt(ctx context.Context, p *pool, o store.Object, spec model.AddressBlock) error {
	if unheld := e.unheld(spec.CIDR); len(unheld) == size(spec.CIDR) && len(spec.Ceded) == 0 {
		if yields, err := e.yield(ctx, p, o, spec.CIDR); yields || err != nil {
			return err
		}
	}
	if err := e.promises(ctx, p, spec.CIDR); err != nil {
		return err
	}
	got, spec, err := e.swap(ctx, o, spec, func(s *model.AddressBlock, claim string) { s.Claim = claim })
	if err != nil {
		return err
	}
	e.flush(ctx, e.unheld(spec.CIDR)) // who knows what was given of it
	e.own(p, got, spec)
	return e.save()
}
