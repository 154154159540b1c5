// SPDX-License-Identifier: Apache-2.0

package blocks

import (
	"net/netip"
	"time"

	"github.com/weft-net/weft/internal/model"
)

// choose is fromMemory; dirty: of the address that it gives, the kernel may still track connections.
func (m *memory) choose(w want, h holder, tired bool) (a netip.Addr, ok, dirty bool, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p, now := m.pool(w.pool), m.clock.now()
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
		m.note(p, w, now, ok)
	}
	return a, ok, dirty, nil
}

// occupied deals with a certain address that somebody has: done, or an error. Where it is free it does nothing. The
// caller holds the lock.
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
func (m *memory) note(p *pool, w want, now time.Time, given bool) {
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
	n := m.spareOf(p, w)
	have := p.count(w, now, nil, n+ahead)
	if have < n {
		m.kick.Notify()
		return
	}
	d.calm = p.gives + have - n
}

// spareOf is how many free addresses are held ready for a want: a block's worth.
func (m *memory) spareOf(p *pool, w want) int {
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
func (m *memory) free(poolName string, a netip.Addr, key model.AttachmentKey) {
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
	m.rest(p, a)
}

// rest takes an address from its holder; the caller holds the lock.
func (m *memory) rest(p *pool, a netip.Addr) {
	delete(p.held, a)
	long := m.cfg.Cooldown
	if p.spec.Cooldown > 0 {
		long = time.Duration(p.spec.Cooldown) * time.Second
	}
	r := rest{m.clock.now().Add(long), m.cfg.Flush != nil}
	if b := p.blockOf(a); b != nil {
		b.dry = false
		if r.until.Before(b.pause) {
			b.pause = r.until
		}
	}
	if len(p.resting) == 0 {
		m.kick.Notify() // while some rest, Run looks often
	}
	p.resting[a] = r
}

// unget takes addresses back that nobody has used. They need no rest. A claim may have had its own before: they stay
// with it until it is seen not to name them.
func (m *memory) unget(ips []model.IP, h holder) {
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
				b.dry, b.pause = false, time.Time{}
			}
			p.tell()
		}
	}
}
