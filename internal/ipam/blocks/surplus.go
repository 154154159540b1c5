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
	"github.com/weft-net/weft/internal/ipam/addrspan"
	"github.com/weft-net/weft/internal/ipam/claims"
	"github.com/weft-net/weft/internal/ipam/duplicatenode"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/notify"
)

// urgentIdle is how long a block must be empty before it is released for another node: long enough to keep a block that
// an ADD in progress has just claimed.
const urgentIdle = 500 * time.Millisecond

// claimPoll is how often the claims of unused addresses are checked.
const claimPoll = time.Minute

// surplus chooses the blocks to release, and stops allocations from them.
func (rt *releaser) surplus(p *pool) []*block {
	rt.state.mu.Lock()
	defer rt.state.mu.Unlock()
	now := rt.clock.now()
	// The reconciler polls while addresses cool down; one more pass follows before they are removed.
	maps.DeleteFunc(
		p.cooling,
		func(_ netip.Addr, r cooling) bool { return !r.needsFlush && now.Sub(r.until) >= 4*urgentIdle },
	)
	if p.disabled() {
		clear(p.demands)
	}
	for id, d := range p.demands {
		if _, expected := p.expected[id]; !expected && now.Sub(d.last) > unusedTime && len(p.held) == 0 {
			delete(p.demands, id)
		}
	}
	var out []*block
	for _, b := range p.order {
		if b.state == owned && p.movesToClaim(b) {
			delete(p.held, b.cidr.Addr())
			b.state = releasing
			out = append(out, b)
		}
		if b.state != owned || !p.empty(b, now) {
			b.idle = time.Time{}
			continue
		}
		if b.idle.IsZero() {
			b.idle = now
		}
		long := rt.cfg.Idle
		lent := b.borrowed() || b.requestedWhole()
		if p.exhausted() || lent {
			long = min(urgentIdle, long)
		}
		if now.Sub(b.idle) < long || !lent && !rt.dispensableLocked(p, b, now) {
			continue
		}
		b.state = releasing
		out = append(out, b)
	}
	return out
}

// movesToClaim reports whether a borrowed address is requested for the claim that owns it, and not in use on this node.
func (p *pool) movesToClaim(b *block) bool {
	_, claim, _ := strings.Cut(b.spec.Requested[b.cidr.Addr()], claims.EntrySeparator)
	return b.borrowed() && claim != "" && p.held[b.cidr.Addr()] == holder{claim: claim}
}

// requestedWhole reports whether another node requests a block of one address.
func (b *block) requestedWhole() bool { return b.cidr.IsSingleIP() && len(b.spec.Requested) > 0 }

// dispensableLocked reports whether enough addresses are free without the block.
func (rt *releaser) dispensableLocked(p *pool, b *block, now time.Time) bool {
	for _, d := range p.demands {
		of := slices.ContainsFunc(d.want.Spans, func(s addrspan.Span) bool { return s.Overlaps(b.cidr) })
		if of && !p.hasFree(d.want, now, b, rt.state.spareTargetLocked(p, d.want)) {
			return false
		}
	}
	return true
}

// releaser releases blocks that this node does not need, and lends addresses that other nodes request.
type releaser struct {
	cfg        *Config
	kick       notify.Chan
	clock      *clock
	state      *nodeState
	duplicates *duplicatenode.Detector
	journal    *journalFile
	registry   *registry
	affinity   *affinity
}

// releaseSurplus releases unneeded blocks, and continues releases that are pending. The caller has the pool's claim
// lock.
func (rt *releaser) releaseSurplus(ctx context.Context, p *pool) error {
	chosen := rt.surplus(p)
	if len(chosen) > 0 {
		if err := rt.journal.save(); err != nil {
			rt.state.mu.Lock() // nothing has been sent
			for _, b := range chosen {
				b.state = owned
			}
			rt.state.mu.Unlock()
			return err
		}
	}
	var errs []error
	for _, b := range rt.releasingBlocks(p) {
		errs = append(errs, rt.affinity.release(ctx, p, b))
	}
	return errors.Join(errs...)
}

func (rt *releaser) releasingBlocks(p *pool) []*block {
	rt.state.mu.Lock()
	defer rt.state.mu.Unlock()
	var out []*block
	for _, b := range p.order {
		if b.state == releasing {
			out = append(out, b)
		}
	}
	return out
}

// withEntry returns a copy of a map with one entry changed.
func withEntry(m map[netip.Addr]string, a netip.Addr, value string) map[netip.Addr]string {
	out := withoutEntry(m, a)
	out[a] = value
	return out
}

// withoutEntry returns a copy of a map without one entry.
func withoutEntry(m map[netip.Addr]string, a netip.Addr) map[netip.Addr]string {
	out := map[netip.Addr]string{}
	for k, v := range m {
		if k != a {
			out[k] = v
		}
	}
	return out
}

// clearDemand reports that the pool is no longer exhausted on this node, once no call waits. The caller has the pool's
// claim lock.
func (rt *releaser) clearDemand(ctx context.Context, p *pool) error {
	rt.state.mu.Lock()
	over := p.waiting == 0 && rt.state.needsAddresses(p)
	rt.state.mu.Unlock()
	if !over {
		return nil
	}
	return rt.registry.setExhausted(ctx, p, false)
}

// releaseClaims releases the addresses of deleted claims. The caller has the pool's claim lock.
func (rt *releaser) releaseClaims(ctx context.Context, p *pool) error {
	now := rt.clock.now()
	unused := map[netip.Addr]string{}
	rt.state.mu.Lock()
	if now.Sub(p.claimsChecked) >= claimPoll {
		p.claimsChecked = now
		for a, h := range p.held {
			if h.claim != "" && h.key == (model.AttachmentKey{}) {
				unused[a] = h.claim
			}
		}
	}
	rt.state.mu.Unlock()
	freed := false
	for a, claim := range unused {
		o, err := store.WithTimeout(ctx, func(ctx context.Context) (store.Object, error) {
			kind, key := claims.ObjectKey(claim)
			return rt.cfg.Objects.Get(ctx, kind, key)
		})
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return store.Unreachable(claims.Describe(claim), err)
		}
		if err == nil && claims.Names(o, a) {
			delete(p.missingClaim, a)
			continue
		}
		if !p.missingClaim[a] {
			p.missingClaim[a] = true // an API server that is starting may miss objects: wait for a second check
			continue
		}
		if ok, err := rt.confirmRelease(ctx, p, a); store.IgnoreConflict(err) != nil {
			return err
		} else if !ok {
			continue // the next time
		}
		delete(p.missingClaim, a)
		rt.state.mu.Lock()
		if p.held[a] == (holder{claim: claim}) {
			rt.state.coolDownLocked(p, a)
			freed = true
		}
		rt.state.mu.Unlock()
	}
	if freed {
		return rt.journal.save()
	}
	return nil
}

// unreserve removes the reservations of deleted attachments from the pool. The caller has the pool's claim lock.
func (rt *releaser) unreserve(ctx context.Context, p *pool) error {
	rt.state.mu.Lock()
	dropped := p.deleted
	rt.state.mu.Unlock()
	if len(dropped) == 0 {
		return nil
	}
	if rt.cfg.SeparateController { // the controller detects deleted pods
		rt.state.mu.Lock()
		p.deleted = p.deleted[len(dropped):]
		rt.state.mu.Unlock()
		return nil
	}
	if err := rt.registry.readPool(ctx, p); err != nil {
		return err
	}
	rt.state.mu.Lock()
	o, spec := p.object, p.spec
	rt.state.mu.Unlock()
	gone := func(r model.ReservedAddress) bool {
		return r.Source != "" && slices.ContainsFunc(dropped, func(k model.AttachmentKey) bool {
			return r.ContainerID == k.ContainerID && r.IfName == k.IfName
		})
	}
	if o.Version != "" && slices.ContainsFunc(spec.Reserved, gone) {
		spec.Reserved = slices.DeleteFunc(slices.Clone(spec.Reserved), gone)
		next, err := store.AddressPoolObject(o, spec)
		if err != nil {
			return err
		}
		got, err := store.WithTimeout(ctx, func(ctx context.Context) (store.Object, error) {
			return rt.cfg.Objects.CompareAndSwap(ctx, store.AddressPools(), o.Version, next)
		})
		if err != nil {
			rt.kick.Notify()
			return store.IgnoreConflict(store.Unreachable("pool "+p.name, err))
		}
		rt.state.mu.Lock()
		rt.state.updatePoolLocked(p, got, spec)
		rt.state.mu.Unlock()
	}
	rt.state.mu.Lock()
	p.deleted = p.deleted[len(dropped):]
	rt.state.mu.Unlock()
	return nil
}
