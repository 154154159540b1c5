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
	"github.com/weft-net/weft/internal/ipam/claims"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/notify"
)

// hurry is how long a block must have been empty when another node needs it: long enough not to take away what a call
// that is under way has just claimed.
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

// yields tells whether a ceded address is asked for by the claim whose it is, and not in use here; the caller holds the
// lock.
func (p *pool) yields(b *block) bool {
	_, claim, _ := strings.Cut(b.spec.Asked[b.cidr.Addr()], claims.For)
	return b.single() && claim != "" && p.held[b.cidr.Addr()] == holder{claim: claim}
}

// asked tells whether another node asks for a block of one address.
func (b *block) asked() bool { return b.cidr.IsSingleIP() && len(b.spec.Asked) > 0 }

// dispensable tells whether enough is free without a block, of which nothing may be wanted any more; the caller holds
// the lock.
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

// quiet tells the other nodes that nobody waits here. The caller has the pool's turn.
func (rt *returner) quiet(ctx context.Context, p *pool) error {
	rt.mem.mu.Lock()
	over := p.hungry == 0 && rt.mem.hungry(p)
	rt.mem.mu.Unlock()
	if !over {
		return nil
	}
	return rt.registry.say(ctx, p, false)
}

// claims frees the addresses of claims that are gone. The caller has the pool's turn.
func (rt *returner) claims(ctx context.Context, p *pool) error {
	now := rt.clock.now()
	unused := map[netip.Addr]string{}
	rt.mem.mu.Lock()
	if now.Sub(p.looked) >= claimLook {
		p.looked = now
		for a, h := range p.held {
			if h.claim != "" && h.key == (model.AttachmentKey{}) {
				unused[a] = h.claim
			}
		}
	}
	rt.mem.mu.Unlock()
	freed := false
	for a, claim := range unused {
		o, err := store.Bounded(ctx, func(ctx context.Context) (store.Object, error) {
			kind, key := claims.Place(claim)
			return rt.cfg.Objects.Get(ctx, kind, key)
		})
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return store.Unreachable(claims.Words(claim), err)
		}
		if err == nil && claims.Says(o, a) {
			delete(p.missed, a)
			continue
		}
		if !p.missed[a] {
			p.missed[a] = true // a server that starts does not know all: believed the second time
			continue
		}
		if ok, err := rt.leave(ctx, p, a); store.IgnoreConflict(err) != nil {
			return err
		} else if !ok {
			continue // the next time
		}
		delete(p.missed, a)
		rt.mem.mu.Lock()
		if p.held[a] == (holder{claim: claim}) {
			rt.mem.rest(p, a)
			freed = true
		}
		rt.mem.mu.Unlock()
	}
	if freed {
		return rt.journal.save()
	}
	return nil
}

// unreserve takes the reservations of deleted attachments out of the pool. The caller has the pool's turn.
func (rt *returner) unreserve(ctx context.Context, p *pool) error {
	rt.mem.mu.Lock()
	dropped := p.dropped
	rt.mem.mu.Unlock()
	if len(dropped) == 0 {
		return nil
	}
	if rt.cfg.Apart { // the controller finds that the pods are gone
		rt.mem.mu.Lock()
		p.dropped = p.dropped[len(dropped):]
		rt.mem.mu.Unlock()
		return nil
	}
	if err := rt.registry.readPool(ctx, p); err != nil {
		return err
	}
	rt.mem.mu.Lock()
	o, spec := p.object, p.spec
	rt.mem.mu.Unlock()
	gone := func(r model.ReservedAddress) bool {
		return r.By != "" && slices.ContainsFunc(dropped, func(k model.AttachmentKey) bool {
			return r.ContainerID == k.ContainerID && r.IfName == k.IfName
		})
	}
	if o.Version != "" && slices.ContainsFunc(spec.Reserved, gone) {
		spec.Reserved = slices.DeleteFunc(slices.Clone(spec.Reserved), gone)
		next, err := store.AddressPoolObject(o, spec)
		if err != nil {
			return err
		}
		got, err := store.Bounded(ctx, func(ctx context.Context) (store.Object, error) {
			return rt.cfg.Objects.CompareAndSwap(ctx, store.AddressPools(), o.Version, next)
		})
		if err != nil {
			rt.kick.Notify()
			return store.IgnoreConflict(store.Unreachable("pool "+p.name, err))
		}
		rt.mem.mu.Lock()
		rt.mem.see(p, got, spec)
		rt.mem.mu.Unlock()
	}
	rt.mem.mu.Lock()
	p.dropped = p.dropped[len(dropped):]
	rt.mem.mu.Unlock()
	return nil
}
