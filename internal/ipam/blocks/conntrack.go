// SPDX-License-Identifier: Apache-2.0

package blocks

import (
	"context"
	"net/netip"
	"time"
)

// flush deletes the conntrack entries of addresses: a connection of the previous owner must not reach the next one.
func (af *affinity) flush(ctx context.Context, addrs []netip.Addr) {
	if af.cfg.Flush == nil || len(addrs) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), requestTimeout)
	defer cancel()
	if err := af.cfg.Flush(ctx, addrs); err != nil {
		// An address that is never allocated again would be worse than a stale connection.
		af.cfg.Log.Warn("agent could not flush conntrack entries of released addresses", "addresses", len(addrs), "err", err)
	}
}

// flushCooled flushes all addresses whose cooldown is over at once, so that no ADD waits for conntrack.
func (af *affinity) flushCooled(ctx context.Context, p *pool) {
	var dirty []netip.Addr
	af.state.mu.Lock()
	now := af.clock.now()
	for a, r := range p.cooling {
		if r.needsFlush && !now.Before(r.until) {
			dirty = append(dirty, a)
		}
	}
	af.state.mu.Unlock()
	if len(dirty) == 0 {
		return
	}
	af.flush(ctx, dirty)
	af.state.mu.Lock()
	defer af.state.mu.Unlock()
	for _, a := range dirty {
		if r, rests := p.cooling[a]; rests && r.needsFlush &&
			!now.Before(r.until) { // not one that was allocated and released meanwhile
			r.needsFlush = false
			p.cooling[a] = r
		}
	}
	for _, b := range p.order {
		b.nextFree = time.Time{}
	}
}

// flushUnheld flushes all free addresses of this node's blocks when an engine starts, because recent releases are not
// on disk.
func (af *affinity) flushUnheld(ctx context.Context) {
	if af.cfg.Flush == nil {
		return
	}
	var cidrs []netip.Prefix
	af.state.mu.Lock()
	for _, p := range af.state.pools {
		for _, b := range p.order {
			cidrs = append(cidrs, b.cidr)
		}
	}
	af.state.mu.Unlock()
	af.flush(ctx, af.state.unheld(cidrs...))
}
