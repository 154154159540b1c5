// SPDX-License-Identifier: Apache-2.0

package blocks

import (
	"context"
	"errors"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/notify"
)

// hurry is how long a block must have been empty when another node needs it: long enough not to take away what a call that
// is under way has just claimed.
const hurry = 500 * time.Millisecond

// surplus chooses the blocks that go back. Nothing is given from them from here on.
func (rt *returner) surplus(p *pool) []*block {
	rt.mem.mu.Lock()
	defer rt.mem.mu.Unlock()
	now := rt.clock.now()
	// Pause goes by what rests; a block that became empty by it is looked at once more before that is forgotten.
	maps.DeleteFunc(p.resting, func(_ netip.Addr, r rest) bool { return !r.dirty && now.Sub(r.until) >= 4*hurry })
	if p.closed() {
		clear(p.wants)
	}
	for id, d := range p.wants {
		if _, expected := p.expected[id]; !expected && now.Sub(d.last) > asleep && len(p.held) == 0 {
			delete(p.wants, id)
		}
	}
	var out []*block
	for _, b := range p.order {
		if b.stands == owned && p.yields(b) {
			delete(p.held, b.cidr.Addr())
			b.stands = releasing
			out = append(out, b)
		}
		if b.stands != owned || !p.empty(b, now) {
			b.idle = time.Time{}
			continue
		}
		if b.idle.IsZero() {
			b.idle = now
		}
		long := rt.cfg.Idle
		lent := b.single() || b.asked()
		if p.tight() || lent {
			long = min(hurry, long)
		}
		if now.Sub(b.idle) < long || !lent && !rt.dispensable(p, b, now) {
			continue
		}
		b.stands = releasing
		out = append(out, b)
	}
	return out
}

// yields tells whether a ceded address is asked for by the claim whose it is, and not in use here; the caller holds the lock.
func (p *pool) yields(b *block) bool {
	_, claim, _ := strings.Cut(b.spec.Asked[b.cidr.Addr()], ForClaim)
	return b.single() && claim != "" && p.held[b.cidr.Addr()] == holder{claim: claim}
}

// asked tells whether another node asks for a block of one address.
func (b *block) asked() bool { return b.cidr.IsSingleIP() && len(b.spec.Asked) > 0 }

// dispensable tells whether enough is free without a block, of which nothing may be wanted any more; the caller holds the lock.
func (rt *returner) dispensable(p *pool, b *block, now time.Time) bool {
	for _, d := range p.wants {
		of := slices.ContainsFunc(d.want.spans, func(s span) bool { return s.overlaps(b.cidr) })
		if of && !p.spare(d.want, now, b, rt.mem.spareOf(p, d.want)) {
			return false
		}
	}
	return true
}

// returner gives back what this node does not need, and what others ask it for.
type returner struct {
	cfg       *Config
	kick      notify.Chan
	clock     *clock
	mem       *memory
	namesakes *namesakes
	journal   *journalFile
	registry  *registry
	affinity  *affinity
}

// giveBack returns what nobody needs, and goes on with returns that are under way. The caller has the pool's turn.
func (rt *returner) giveBack(ctx context.Context, p *pool) error {
	chosen := rt.surplus(p)
	if len(chosen) > 0 {
		if err := rt.journal.save(); err != nil {
			rt.mem.mu.Lock() // nothing has been sent
			for _, b := range chosen {
				b.stands = owned
			}
			rt.mem.mu.Unlock()
			return err
		}
	}
	var errs []error
	for _, b := range rt.inReturn(p) {
		errs = append(errs, rt.affinity.release(ctx, p, b))
	}
	return errors.Join(errs...)
}

func (rt *returner) inReturn(p *pool) []*block {
	rt.mem.mu.Lock()
	defer rt.mem.mu.Unlock()
	var out []*block
	for _, b := range p.order {
		if b.stands == releasing {
			out = append(out, b)
		}
	}
	return out
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
			if node, _, _ := strings.Cut(s.Asked[a], ForClaim); node != "" {
				to = node + "/"
			}
			s.Ceded, s.Asked = having(s.Ceded, a, to), lacking(s.Asked, a)
		})
		if err != nil {
			return ignoreConflict(err) // once more, later
		}
		return af.forget(p, b)
	}
	for a, with := range b.spec.Ceded {
		if !b.nobodys(a, with, af.clock.now()) {
			return af.renew(ctx, p, b) // somebody took a ceded address: the block has to stay
		}
	}
	if err := af.cfg.step("before delete"); err != nil {
		return err
	}
	_, err = Bounded(ctx, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, af.cfg.Objects.Delete(ctx, store.AddressBlocks(), b.object.Key, b.object.Version)
	})
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return ignoreConflict(Unreachable("return of block "+b.cidr.String(), err))
	}
	if err := af.cfg.step("after delete"); err != nil {
		return err
	}
	return af.forget(p, b)
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
	if with := spec.Ceded[b.cidr.Addr()]; err == nil && b.single() && af.namesakes.claimedHere(thing(p.name, b.cidr), with) {
		_, err := af.grab(ctx, p, b.cidr.Addr(), claimIn(with), o, spec) // the same of a single address
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
		af.cfg.Log.Error("block is ours no more: nothing is given from it", "pool", p.name, "block", b.cidr.String(), "node", spec.Node)
		return false, af.journal.save()
	}
	return false, nil
}

// recover takes a block, or a ceded address, into use that was thought to be lost.
func (af *affinity) recover(ctx context.Context, p *pool, b *block) error {
	if !b.single() {
		return af.renew(ctx, p, b)
	}
	_, err := af.grab(ctx, p, b.cidr.Addr(), claimIn(b.claim), b.object, b.spec)
	return err
}

// renew takes a block whose return has begun into use again. The new claim makes sure that the return never happens.
func (af *affinity) renew(ctx context.Context, p *pool, b *block) error {
	o, spec, err := af.registry.swap(ctx, b.object, b.spec, func(s *model.AddressBlock, claim string) { s.Claim = claim })
	if err != nil {
		return ignoreConflict(err)
	}
	af.own(p, o, spec)
	return af.journal.save()
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

func ignoreConflict(err error) error {
	if errors.Is(err, store.ErrConflict) || errors.Is(err, store.ErrNotFound) {
		return nil
	}
	return err
}

// having is a map with one entry changed; the old one stays as it is.
func having(m map[netip.Addr]string, a netip.Addr, value string) map[netip.Addr]string {
	out := lacking(m, a)
	out[a] = value
	return out
}

// lacking is a map without one entry; the old one stays as it is.
func lacking(m map[netip.Addr]string, a netip.Addr) map[netip.Addr]string {
	out := map[netip.Addr]string{}
	for k, v := range m {
		if k != a {
			out[k] = v
		}
	}
	return out
}
