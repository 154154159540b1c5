// SPDX-License-Identifier: Apache-2.0

package blocks

import (
	"context"
	"net/netip"
	"time"
)

// flush has the kernel forget what it tracks of addresses: a connection of who had one before must not lead to who has
// it next.
func (af *affinity) flush(ctx context.Context, addrs []netip.Addr) {
	if af.cfg.Flush == nil || len(addrs) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), request)
	defer cancel()
	if err := af.cfg.Flush(ctx, addrs); err != nil {
		// An address that is never given again would be worse than an old connection.
		af.cfg.Log.Warn("connections of released addresses are still tracked", "addresses", len(addrs), "err", err)
	}
}

// rinse flushes the addresses that have rested, all of them at once, so that no ADD has to wait for it.
func (af *affinity) rinse(ctx context.Context, p *pool) {
	var dirty []netip.Addr
	af.mem.mu.Lock()
	now := af.clock.now()
	for a, r := range p.resting {
		if r.dirty && !now.Before(r.until) {
			dirty = append(dirty, a)
		}
	}
	af.mem.mu.Unlock()
	if len(dirty) == 0 {
		return
	}
	af.flush(ctx, dirty)
	af.mem.mu.Lock()
	defer af.mem.mu.Unlock()
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
func (af *affinity) rinseAll(ctx context.Context) {
	if af.cfg.Flush == nil {
		return
	}
	var cidrs []netip.Prefix
	af.mem.mu.Lock()
	for _, p := range af.mem.pools {
		for _, b := range p.order {
			cidrs = append(cidrs, b.cidr)
		}
	}
	af.mem.mu.Unlock()
	af.flush(ctx, af.mem.unheld(cidrs...))
}
