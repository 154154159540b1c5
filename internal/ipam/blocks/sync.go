// SPDX-License-Identifier: Apache-2.0

package blocks

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/model"
)

// sync compares all that is known of a pool's blocks with the store.
func (e *Engine) sync(ctx context.Context, p *pool) error {
	all, err := Bounded(ctx, func(ctx context.Context) ([]store.Object, error) {
		return e.cfg.Objects.List(ctx, store.AddressBlocks())
	})
	if err != nil {
		return Unreachable("list of blocks", err)
	}
	e.mu.Lock()
	clear(p.others)
	e.meetRivals(p, all)
	p.stale = true
	for _, b := range p.order {
		b.stale = true
	}
	e.mu.Unlock()
	for _, o := range all {
		spec, err := o.AddressBlock()
		if err != nil || spec.Pool != p.name {
			continue
		}
		e.mu.Lock()
		known := p.blocks[spec.CIDR] != nil
		e.mu.Unlock()
		ours := known && spec.Node == e.cfg.Node || e.ours(spec) // of what is known, refresh finds out
		if !ours {
			e.mu.Lock()
			p.others[spec.CIDR] = spec
			e.mu.Unlock()
		}
		if ours && !known {
			if err := ignoreConflict(e.adopt(ctx, p, o, spec)); err != nil {
				return err
			}
		}
		if spec.Node != e.cfg.Node {
			if err := e.adoptSingles(ctx, p, o); err != nil {
				return err
			}
		}
	}
	e.mu.Lock()
	p.tell()
	e.mu.Unlock()
	return nil
}

// adoptSingles takes ceded addresses into use that the store says are ours, and that this engine does not know.
func (e *Engine) adoptSingles(ctx context.Context, p *pool, o store.Object) error {
	spec, err := o.AddressBlock()
	if err != nil {
		return nil //nolint:nilerr // an object that is not understood is nobody's
	}
	for a, with := range spec.Ceded {
		mine := len(with) > len(e.cfg.Node) && with[:len(e.cfg.Node)+1] == e.cfg.Node+"/"
		e.mu.Lock()
		known := p.blocks[netip.PrefixFrom(a, a.BitLen())] != nil
		e.mu.Unlock()
		if !mine || known || with == e.cfg.Node+"/" && !e.isHeld(p, a) || e.strange(machineOf(with), thing(p.name, netip.PrefixFrom(a, a.BitLen())), with) {
			continue
		}
		e.flush(ctx, e.unheld(netip.PrefixFrom(a, a.BitLen())))
		if err := e.promises(ctx, p, netip.PrefixFrom(a, a.BitLen())); err != nil {
			return err
		}
		if _, err := e.grab(ctx, p, a, claimIn(with), o, spec); err != nil {
			return err
		}
		e.wake() // one after the other: the object has another version now
		e.mu.Lock()
		e.synced = false
		e.mu.Unlock()
		return nil
	}
	return nil
}

// unknownSingle tells whether the store says that an address of another node's block was ceded to this node, and this
// engine does not know; the caller holds the lock.
func (e *Engine) unknownSingle(p *pool, spec model.AddressBlock) bool {
	for a, with := range spec.Ceded {
		claim, ours := strings.CutPrefix(with, e.cfg.Node+"/")
		if ours && claim != "" && spec.Node != e.cfg.Node && p.blocks[netip.PrefixFrom(a, a.BitLen())] == nil {
			return true
		}
	}
	return false
}

// isHeld tells whether somebody here has an address.
func (e *Engine) isHeld(p *pool, a netip.Addr) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	_, held := p.held[a]
	return held
}

// freshen reads what is known to be out of date.
func (e *Engine) freshen(ctx context.Context, p *pool) error {
	e.mu.Lock()
	stale := p.stale
	p.stale = false
	blocks := slices.DeleteFunc(slices.Clone(p.order), func(b *block) bool { return !b.stale && b.stands != lost && len(b.away) <= len(b.spec.Ceded) })
	e.mu.Unlock()
	if stale {
		if err := e.readPool(ctx, p); err != nil {
			e.mu.Lock()
			p.stale = true
			e.mu.Unlock()
			return err
		}
	}
	for _, b := range blocks {
		e.mu.Lock()
		b.stale = false
		e.mu.Unlock()
		there, err := e.refresh(ctx, p, b)
		if err == nil && there && !b.single() && b.stands == owned && len(b.away) > len(b.spec.Ceded) {
			err = e.renew(ctx, p, b) // a cession whose outcome nobody knows: now it cannot happen any more
		}
		if err != nil {
			e.mu.Lock()
			b.stale = true
			e.mu.Unlock()
			return err
		}
	}
	return nil
}

func (e *Engine) readPool(ctx context.Context, p *pool) error {
	kind := store.AddressPools()
	o, err := Bounded(ctx, func(ctx context.Context) (store.Object, error) {
		return e.cfg.Objects.Get(ctx, kind, kind.Key("", p.name))
	})
	if errors.Is(err, store.ErrNotFound) {
		e.mu.Lock()
		p.object = store.Object{} // the next claim makes it again, or says that it is missing
		e.mu.Unlock()
		return nil
	}
	if err != nil {
		return Unreachable("pool "+p.name, err)
	}
	spec, err := o.AddressPool()
	if err != nil {
		return err
	}
	e.mu.Lock()
	e.see(p, o, spec)
	e.mu.Unlock()
	return nil
}
