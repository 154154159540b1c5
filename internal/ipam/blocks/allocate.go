// SPDX-License-Identifier: Apache-2.0

package blocks

import (
	"net/netip"
	"time"

	"github.com/weft-net/weft/internal/ipam/poolconf"
	"github.com/weft-net/weft/internal/model"
)

// allocate is allocateLocal without the flush; dirty: conntrack may still have entries of the address.
func (m *nodeState) allocate(w poolconf.Want, h holder, ignoreCooldown bool) (a netip.Addr, ok, dirty bool, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p, now := m.poolLocked(w.Pool), m.clock.now()
	if w.Addr.IsValid() {
		if done, err := p.checkSpecificLocked(&w, h); done || err != nil {
			return w.Addr, done && err == nil, false, err
		}
	}
	a, ok = p.pick(w, now, ignoreCooldown || w.Addr.IsValid())
	dirty = ok && p.cooling[a].needsFlush
	if ok {
		p.assignLocked(a, h, now)
	}
	if !w.Addr.IsValid() {
		m.recordDemandLocked(p, w, now, ok)
	}
	return a, ok, dirty, nil
}

// checkSpecificLocked handles a specific address that is not free: done if the claim already has it, else an error.
func (p *pool) checkSpecificLocked(w *poolconf.Want, h holder) (done bool, err error) {
	was, held := p.held[w.Addr]
	if !held {
		if r, is := p.reserved[w.Addr]; is {
			return false, taken(*w, reservedFor(r))
		}
		if r, is := p.overlappingBlock(w.Addr); is {
			return false, taken(*w, "pool "+r.Pool+", whose block "+r.CIDR.String()+" node "+r.Node+" has")
		}
		return false, nil
	}
	if h.claim == "" || was.claim != h.claim || was.key != (model.AttachmentKey{}) {
		return false, taken(*w, was.String())
	}
	if b := p.blockOf(w.Addr); b == nil || b.state != owned || b.lent[w.Addr] {
		return false, nil // the node that used the claim last has it; pick does not return it
	}
	p.held[w.Addr] = h // the claim's own address, which no attachment uses
	return true, nil
}

// recordDemandLocked records that an address was requested, and wakes Run to claim a spare block where few are left.
func (m *nodeState) recordDemandLocked(p *pool, w poolconf.Want, now time.Time, given bool) {
	d := p.demands[w.ID()]
	if d == nil {
		d = &demand{want: w}
		p.demands[w.ID()] = d
	}
	d.last = now
	if !given || p.allocations < d.nextCheck {
		return
	}
	const ahead = 64 // count so many more, and count again only when they are allocated
	n := m.spareTargetLocked(p, w)
	have := p.countFree(w, now, nil, n+ahead)
	if have < n {
		m.kick.Notify()
		return
	}
	d.nextCheck = p.allocations + have - n
}

// spareTargetLocked is how many free addresses are kept in reserve for a want: one block.
func (m *nodeState) spareTargetLocked(p *pool, w poolconf.Want) int {
	if len(w.Spans) == 0 || p.exhausted() {
		return 0
	}
	r, ok := p.region(w.Spans[0].From)
	if !ok {
		return 1
	}
	return 1 << (r.CIDR.Addr().BitLen() - r.BlockSize)
}

// release puts the holder's address into cooldown. A claim keeps its addresses.
func (m *nodeState) release(poolName string, a netip.Addr, key model.AttachmentKey) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.pools[poolName]
	if p == nil || p.held[a].key != key {
		return
	}
	if claim := p.held[a].claim; claim != "" {
		p.held[a] = holder{claim: claim}
		m.kick.Notify()
		return
	}
	m.coolDownLocked(p, a)
}

// coolDownLocked releases an address and starts its cooldown.
func (m *nodeState) coolDownLocked(p *pool, a netip.Addr) {
	delete(p.held, a)
	long := m.cfg.Cooldown
	if p.spec.Cooldown > 0 {
		long = time.Duration(p.spec.Cooldown) * time.Second
	}
	r := cooling{m.clock.now().Add(long), m.cfg.Flush != nil}
	if b := p.blockOf(a); b != nil {
		b.exhausted = false
		if r.until.Before(b.nextFree) {
			b.nextFree = r.until
		}
	}
	if len(p.cooling) == 0 {
		m.kick.Notify() // while addresses cool down, Run polls
	}
	p.cooling[a] = r
}

// rollback releases addresses that were never used, without a cooldown. A claim keeps its addresses until it no longer
// names them.
func (m *nodeState) rollback(ips []model.IP, h holder) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, ip := range ips {
		a := ip.Address.Addr()
		for _, p := range m.pools {
			if p.held[a] != h {
				continue
			}
			if h.claim != "" {
				p.held[a] = holder{claim: h.claim}
				m.kick.Notify()
				continue
			}
			delete(p.held, a)
			if b := p.blockOf(a); b != nil {
				b.exhausted, b.nextFree = false, time.Time{}
			}
			p.notifyLocked()
		}
	}
}
