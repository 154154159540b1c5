// SPDX-License-Identifier: Apache-2.0

package blocks

import (
	"net/netip"
	"slices"
	"time"

	"github.com/weft-net/weft/internal/model"
)

// rest is how an address rests.
type rest struct {
	until time.Time
	// dirty: the kernel may still track connections of who had it.
	dirty bool
}

// over tells whether an address may be given again.
func (r rest) over(now time.Time) bool { return !r.dirty && !now.Before(r.until) }

// next is when to look at it again.
func (r rest) next(now time.Time) time.Time {
	if soon := now.Add(often); r.dirty && r.until.Before(soon) {
		return soon // when it is clean, that is told
	}
	return r.until
}

// free tells whether an address of a block may be given; rested permits one that rests.
func (p *pool) free(b *block, a netip.Addr, now time.Time, rested bool) bool {
	if b.stands != owned || b.away[a] {
		return false
	}
	if _, held := p.held[a]; held {
		return false
	}
	if _, is := p.reserved[a]; is {
		return false
	}
	if len(p.spec.Excluded) > 0 && p.excluded(a) {
		return false
	}
	if _, is := p.rivalOf(a); is {
		return false
	}
	return rested || p.resting[a].over(now)
}

// excluded tells whether a part of the pool that is given to nobody has an address.
func (p *pool) excluded(a netip.Addr) bool {
	return slices.ContainsFunc(p.spec.Excluded, func(x model.ExcludedRange) bool { return x.CIDR.Contains(a) })
}

// pick is the first address for a want. When tired, one that rests will do: that which has rested longest.
func (p *pool) pick(w want, now time.Time, tired bool) (netip.Addr, bool) {
	var best netip.Addr
	for _, b := range p.order {
		if b.stands != owned || b.dry || w.addr.IsValid() && !b.cidr.Contains(w.addr) || !tired && now.Before(b.pause) {
			continue
		}
		if w.addr.IsValid() {
			if w.allows(w.addr) && p.free(b, w.addr, now, tired) {
				return w.addr, true
			}
			continue
		}
		a, done := p.look(b, w, now, tired)
		switch {
		case !a.IsValid():
		case done:
			return a, true
		case !best.IsValid() || p.resting[a].until.Before(p.resting[best].until):
			best = a
		}
	}
	return best, best.IsValid()
}

// look is pick in one block; done: what was found needs no comparison with other blocks.
func (p *pool) look(b *block, w want, now time.Time, tired bool) (best netip.Addr, done bool) {
	dry, pause := true, now.Add(unpaused)
	each(b.cidr, func(a netip.Addr) bool {
		if !p.free(b, a, now, true) {
			return true
		}
		dry = false
		over := p.resting[a].over(now)
		if next := p.resting[a].next(now); next.Before(pause) {
			pause = next
		}
		switch {
		case !w.allows(a) || !over && !tired:
		case over && !tired:
			best, done = a, true
		case !best.IsValid() || p.resting[a].until.Before(p.resting[best].until):
			best = a
		}
		return !done
	})
	if !done {
		b.dry, b.pause = dry, pause
	}
	return best, done
}

// give gives an address.
func (p *pool) give(a netip.Addr, h holder, now time.Time) {
	delete(p.resting, a)
	p.held[a] = h
	p.gives++
	if b := p.blockOf(a); b != nil {
		b.idle, b.touched = time.Time{}, now
	}
}

// spare tells whether so many addresses for a want are free now, those of one block left out.
func (p *pool) spare(w want, now time.Time, but *block, n int) bool {
	return p.count(w, now, but, n) >= n
}

// count is how many addresses for a want are free now, those of one block left out; it stops at most.
func (p *pool) count(w want, now time.Time, but *block, most int) int {
	n := 0
	for _, b := range slices.Backward(p.order) { // the last were claimed last, most often
		if n >= most {
			break
		}
		if b == but || b.dry || b.stands != owned || now.Before(b.pause) {
			continue
		}
		each(b.cidr, func(a netip.Addr) bool {
			if w.allows(a) && p.free(b, a, now, false) {
				n++
			}
			return n < most
		})
	}
	return n
}
