// SPDX-License-Identifier: Apache-2.0

package blocks

import (
	"context"
	"net/netip"
	"time"
)

// flush has the kernel forget what it tracks of addresses: a connection of who had one before must not lead to who has it next.
func (e *Engine) flush(ctx context.Context, addrs []netip.Addr) {
	if e.cfg.Flush == nil || len(addrs) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), request)
	defer cancel()
	if err := e.cfg.Flush(ctx, addrs); err != nil {
		// An address that is never given again would be worse than an old connection.
		e.cfg.Log.Warn("connections of released addresses are still tracked", "addresses", len(addrs), "err", err)
	}
}

// rinse flushes the addresses that have rested, all of them at once, so that no ADD has to wait for it.
func (e *Engine) rinse(ctx context.Context, p *pool) {
	var dirty []netip.Addr
	e.mu.Lock()
	now := e.now()
	for a, r := range p.resting {
		if r.dirty && !now.Before(r.until) {
			dirty = append(dirty, a)
		}
	}
	e.mu.Unlock()
	if len(dirty) == 0 {
		return
	}
	e.flush(ctx, dirty)
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, a := range dirty {
		if r, rests := p.resting[a]; rests && r.dirty && !now.Before(r.until) { // not one that was given and rests again
			r.dirty = false
			p.resting[a] = r
		}
	}
	for _, b := range p.order {
		b.pause = time.Time{}
	}
}

// rinseAll flushes what may be free of this node's blocks: when an engine starts, nobody knows what was released last.
func (e *Engine) rinseAll(ctx context.Context) {
	if e.cfg.Flush == nil {
		return
	}
	var cidrs []netip.Prefix
	e.mu.Lock()
	for _, p := range e.pools {
		for _, b := range p.order {
			cidrs = append(cidrs, b.cidr)
		}
	}
	e.mu.Unlock()
	e.flush(ctx, e.unheld(cidrs...))
}

// unheld are the addresses that nobody has.
func (e *Engine) unheld(cidrs ...netip.Prefix) (out []netip.Addr) {
	e.mu.Lock()
	defer e.mu.Unlock()
	held := map[netip.Addr]bool{}
	for _, p := range e.pools {
		for a := range p.held {
			held[a] = true
		}
	}
	for _, cidr := range cidrs {
		each(cidr, func(a netip.Addr) bool {
			if !held[a] {
				out = append(out, a)
			}
			return true
		})
	}
	return out
}
