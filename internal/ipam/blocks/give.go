// SPDX-License-Identifier: Apache-2.0

package blocks

import (
	"context"
	"errors"
	"net/netip"
	"time"

	"github.com/weft-net/weft/internal/model"
)

// take gives an address, out of memory where that is possible.
func (e *Engine) take(ctx context.Context, w want, h holder) (netip.Addr, error) {
	if a, ok, err := e.fromMemory(ctx, w, h, false); ok || err != nil {
		return a, err
	}
	return e.insist(ctx, w, h, e.cfg.Patience)
}

// insist gives an address that this node has not got yet, or one that rests.
func (e *Engine) insist(ctx context.Context, w want, h holder, patience time.Duration) (netip.Addr, error) {
	a, err := e.obtain(ctx, w, h, patience)
	if errors.Is(err, errSilent) {
		// Better an address that rests than none.
		if rested, ok, tooErr := e.fromMemory(ctx, w, h, true); ok || tooErr != nil {
			return rested, tooErr
		}
		err = silent(w, err)
	}
	return a, err
}

func silent(w want, err error) error {
	return model.Faultf(model.CodeTryAgain, "", "%s: no address of this node's own blocks is free; %w", w.field, err)
}

// fromMemory gives an address of this node's blocks. Nobody is asked.
func (e *Engine) fromMemory(ctx context.Context, w want, h holder, tired bool) (netip.Addr, bool, error) {
	a, ok, dirty, err := e.choose(w, h, tired)
	if dirty {
		e.flush(ctx, []netip.Addr{a})
	}
	return a, ok, err
}

// choose is fromMemory; dirty: of the address that it gives, the kernel may still track connections.
func (e *Engine) choose(w want, h holder, tired bool) (a netip.Addr, ok, dirty bool, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	p, now := e.pool(w.pool), e.now()
	if w.addr.IsValid() {
		if done, err := p.occupied(&w, h); done || err != nil {
			return w.addr, done && err == nil, false, err
		}
	}
	a, ok = p.pick(w, now, tired || w.addr.IsValid())
	dirty = ok && p.resting[a].dirty
	if ok {
		p.give(a, h, now)
	}
	if !w.addr.IsValid() {
		e.note(p, w, now, ok)
	}
	return a, ok, dirty, nil
}

// occupied deals with a certain address that somebody has: done, or an error. Where it is free it does nothing. The caller
// holds the lock.
func (p *pool) occupied(w *want, h holder) (done bool, err error) {
	was, held := p.held[w.addr]
	if !held {
		if r, is := p.reserved[w.addr]; is {
			return false, taken(*w, reservedFor(r))
		}
		if r, is := p.rivalOf(w.addr); is {
			return false, taken(*w, "pool "+r.Pool+", whose block "+r.CIDR.String()+" node "+r.Node+" has")
		}
		return false, nil
	}
	if h.claim == "" || was.claim != h.claim || was.key != (model.AttachmentKey{}) {
		return false, taken(*w, was.String())
	}
	if b := p.blockOf(w.addr); b == nil || b.stands != owned || b.away[w.addr] {
		return false, nil // it is where the claim was used last; pick does not give it
	}
	p.held[w.addr] = h // the claim's own address, which nobody used just now
	return true, nil
}

// note remembers that an address was wanted, and has Run look after more where few are left. The caller holds the lock.
func (e *Engine) note(p *pool, w want, now time.Time, given bool) {
	d := p.wants[w.id()]
	if d == nil {
		d = &demand{want: w}
		p.wants[w.id()] = d
	}
	d.last = now
	if !given || p.gives < d.calm {
		return
	}
	const ahead = 64 // so many more are counted, and not looked at again before they are given
	n := e.spareOf(p, w)
	have := p.count(w, now, nil, n+ahead)
	if have < n {
		e.wake()
		return
	}
	d.calm = p.gives + have - n
}

// spareOf is how many free addresses are held ready for a want: a block's worth.
func (e *Engine) spareOf(p *pool, w want) int {
	if len(w.spans) == 0 || p.tight() {
		return 0
	}
	r, ok := p.region(w.spans[0].from)
	if !ok {
		return 1
	}
	return 1 << (r.CIDR.Addr().BitLen() - r.BlockSize)
}

// free lets an address rest that the holder has. A claim keeps its own.
func (e *Engine) free(poolName string, a netip.Addr, key model.AttachmentKey) {
	e.mu.Lock()
	defer e.mu.Unlock()
	p := e.pools[poolName]
	if p == nil || p.held[a].key != key {
		return
	}
	if claim := p.held[a].claim; claim != "" {
		p.held[a] = holder{claim: claim}
		e.wake()
		return
	}
	e.rest(p, a)
}

// rest takes an address from its holder; the caller holds the lock.
func (e *Engine) rest(p *pool, a netip.Addr) {
	delete(p.held, a)
	long := e.cfg.Cooldown
	if p.spec.Cooldown > 0 {
		long = time.Duration(p.spec.Cooldown) * time.Second
	}
	r := rest{e.now().Add(long), e.cfg.Flush != nil}
	if b := p.blockOf(a); b != nil {
		b.dry = false
		if r.until.Before(b.pause) {
			b.pause = r.until
		}
	}
	if len(p.resting) == 0 {
		e.wake() // while some rest, Run looks often
	}
	p.resting[a] = r
}
