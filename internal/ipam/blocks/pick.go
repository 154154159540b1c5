// SPDX-License-Identifier: Apache-2.0

package blocks

import (
	"net/netip"
	"slices"
	"time"

	"github.com/weft-net/weft/internal/ipam/addrspan"
	"github.com/weft-net/weft/internal/ipam/poolconf"
	"github.com/weft-net/weft/internal/model"
)

// cooling is the cooldown of a released address.
type cooling struct {
	until time.Time
	// needsFlush: conntrack may still have entries of its last owner.
	needsFlush bool
}

// finished reports whether the address may be allocated again.
func (r cooling) finished(now time.Time) bool { return !r.needsFlush && !now.Before(r.until) }

// nextCheck returns when to check it again.
func (r cooling) nextCheck(now time.Time) time.Time {
	if soon := now.Add(pollInterval); r.needsFlush && r.until.Before(soon) {
		return soon // the flush resets the block's nextFree
	}
	return r.until
}

// free reports whether an address of a block may be allocated; rested allows one in cooldown.
func (p *pool) free(b *block, a netip.Addr, now time.Time, rested bool) bool {
	if b.state != owned || b.lent[a] {
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
	if _, is := p.overlappingBlock(a); is {
		return false
	}
	return rested || p.cooling[a].finished(now)
}

// excluded reports whether an address is in an excluded range of the pool.
func (p *pool) excluded(a netip.Addr) bool {
	return slices.ContainsFunc(p.spec.Excluded, func(x model.ExcludedRange) bool { return x.CIDR.Contains(a) })
}

// pick returns the first free address for a want. With ignoreCooldown it may be one in cooldown: the one whose cooldown
// ends first.
func (p *pool) pick(w poolconf.Want, now time.Time, ignoreCooldown bool) (netip.Addr, bool) {
	var best netip.Addr
	for _, b := range p.order {
		if b.state != owned || b.exhausted || w.Addr.IsValid() && !b.cidr.Contains(w.Addr) ||
			!ignoreCooldown && now.Before(b.nextFree) || now.Before(b.pausedUntil) {
			continue
		}
		if w.Addr.IsValid() {
			if w.Allows(w.Addr) && p.free(b, w.Addr, now, ignoreCooldown) {
				return w.Addr, true
			}
			continue
		}
		a, done := p.pickFrom(b, w, now, ignoreCooldown)
		switch {
		case !a.IsValid():
		case done:
			return a, true
		case !best.IsValid() || p.cooling[a].until.Before(p.cooling[best].until):
			best = a
		}
	}
	return best, best.IsValid()
}

// pickFrom is pick in one block; done: the address needs no comparison with other blocks.
func (p *pool) pickFrom(b *block, w poolconf.Want, now time.Time, ignoreCooldown bool) (best netip.Addr, done bool) {
	exhausted, pause := true, now.Add(maxNextFree)
	addrspan.Each(b.cidr, func(a netip.Addr) bool {
		if !p.free(b, a, now, true) {
			return true
		}
		exhausted = false
		over := p.cooling[a].finished(now)
		if next := p.cooling[a].nextCheck(now); next.Before(pause) {
			pause = next
		}
		switch {
		case !w.Allows(a) || !over && !ignoreCooldown:
		case over && !ignoreCooldown:
			best, done = a, true
		case !best.IsValid() || p.cooling[a].until.Before(p.cooling[best].until):
			best = a
		}
		return !done
	})
	if !done {
		b.exhausted, b.nextFree = exhausted, pause
	}
	return best, done
}

// assignLocked allocates an address to a holder.
func (p *pool) assignLocked(a netip.Addr, h holder, now time.Time) {
	delete(p.cooling, a)
	p.held[a] = h
	p.allocations++
	if b := p.blockOf(a); b != nil {
		b.idle, b.touched = time.Time{}, now
	}
}

// hasFree reports whether n addresses for a want are free now, without those of the block but.
func (p *pool) hasFree(w poolconf.Want, now time.Time, but *block, n int) bool {
	return p.countFree(w, now, but, n) >= n
}

// countFree counts the free addresses for a want, without those of the block but, up to most.
func (p *pool) countFree(w poolconf.Want, now time.Time, but *block, most int) int {
	n := 0
	for _, b := range slices.Backward(p.order) { // the last blocks are usually the newest
		if n >= most {
			break
		}
		if b == but || b.exhausted || b.state != owned || now.Before(b.nextFree) || now.Before(b.pausedUntil) {
			continue
		}
		addrspan.Each(b.cidr, func(a netip.Addr) bool {
			if w.Allows(a) && p.free(b, a, now, false) {
				n++
			}
			return n < most
		})
	}
	return n
}
