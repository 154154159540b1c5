// SPDX-License-Identifier: Apache-2.0

package blocks

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"time"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/ipam/addressclaims"
	"github.com/weft-net/weft/internal/ipam/addrspan"
	"github.com/weft-net/weft/internal/ipam/duplicatenode"
	"github.com/weft-net/weft/internal/ipam/poolconf"
	"github.com/weft-net/weft/internal/ipam/poolrequest"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/notify"
)

// answerPoll is how often a request to another node is checked for its answer, in addition to the watch: a refusal
// restores the block as it was, and a watch that coalesces changes then sends no event.
const answerPoll = 500 * time.Millisecond

// acquirer allocates an address for an attachment: from this node's blocks, else by claiming a block, by borrowing from
// another node's block, or by requesting it from the node that has it.
type acquirer struct {
	cfg        *Config
	kick       notify.Chan
	clock      *clock
	state      *nodeState
	duplicates *duplicatenode.Detector
	journal    *journalFile
	registry   *registry
	requests   *poolrequest.Client
	claims     *addressclaims.Claims
	affinity   *affinity
}

// allocate allocates an address, from this node's blocks if possible.
func (ob *acquirer) allocate(ctx context.Context, w poolconf.Want, h holder) (netip.Addr, error) {
	if a, ok, err := ob.allocateLocal(ctx, w, h, false); ok || err != nil {
		return a, err
	}
	return ob.retryAcquire(ctx, w, h, ob.cfg.WaitLimit)
}

// retryAcquire acquires an address from the datastore, or allocates one that is cooling down where the datastore does
// not answer.
func (ob *acquirer) retryAcquire(ctx context.Context, w poolconf.Want, h holder, limit time.Duration) (netip.Addr, error) {
	a, err := ob.acquire(ctx, w, h, limit)
	if errors.Is(err, store.ErrNoAnswer) {
		// An address in cooldown is better than none.
		if rested, ok, tooErr := ob.allocateLocal(ctx, w, h, true); ok || tooErr != nil {
			return rested, tooErr
		}
		err = storeSilent(w, err)
	}
	return a, err
}

func storeSilent(w poolconf.Want, err error) error {
	return model.Errorf(model.CodeTryAgain, "", "%s: no address of this node's own blocks is free; %w", w.Field, err)
}

// allocateLocal allocates an address of this node's blocks, without a request to the datastore.
func (ob *acquirer) allocateLocal(
	ctx context.Context,
	w poolconf.Want,
	h holder,
	ignoreCooldown bool,
) (netip.Addr, bool, error) {
	a, ok, dirty, err := ob.state.allocate(w, h, ignoreCooldown)
	if dirty {
		ob.affinity.flush(ctx, []netip.Addr{a})
	}
	return a, ok, err
}

// acquire allocates an address that this node does not have yet: it claims a block, borrows what other nodes lend, and
// finally requests addresses from them.
func (ob *acquirer) acquire(ctx context.Context, w poolconf.Want, h holder, limit time.Duration) (netip.Addr, error) {
	ctx, cancel := context.WithTimeout(ctx, limit+time.Second) // also if the datastore does not answer
	defer cancel()
	p, release, err := ob.affinity.lockPool(ctx, w)
	if err != nil {
		return netip.Addr{}, err
	}
	defer func() { release() }()
	deadline := ob.cfg.After(limit)
	waiting := false
	defer func() {
		if waiting {
			ob.doneWaiting(p)
		}
	}()
	for {
		ob.state.mu.Lock()
		changed := p.changed
		ob.state.mu.Unlock()
		if a, ok, err := ob.allocateLocal(ctx, w, h, false); ok || err != nil {
			return a, err
		}
		got, err := ob.claimMore(ctx, p, w)
		if err != nil {
			return netip.Addr{}, err
		}
		if got {
			continue
		}
		// Nothing is free. An address in cooldown is better than none.
		if a, ok, err := ob.allocateLocal(ctx, w, h, true); ok || err != nil {
			return a, err
		}
		if waiting, err = ob.reportDemand(ctx, p, w, waiting); err != nil {
			return netip.Addr{}, err
		}
		release() // other calls on this node need not wait for it
		release = func() {}
		late, err := ob.wait(ctx, w, changed, deadline)
		if err != nil {
			return netip.Addr{}, err
		}
		if late {
			return ob.lastResort(ctx, p, w, h)
		}
		if _, release, err = ob.affinity.lockPool(ctx, w); err != nil {
			release = func() {}
			return netip.Addr{}, err
		}
	}
}

// wait waits until an address may be available, or the deadline has passed.
func (ob *acquirer) wait(
	ctx context.Context, w poolconf.Want, changed <-chan struct{}, deadline <-chan time.Time,
) (late bool, err error) {
	var poll <-chan time.Time
	if w.Addr.IsValid() { // one node has it and was sent a request; any other address comes with a change of the pool
		poll = ob.cfg.After(answerPoll)
	}
	select {
	case <-changed:
	case <-poll:
	case <-deadline:
		return true, nil
	case <-ctx.Done():
		return false, model.Errorf(model.CodeTryAgain, "", "%s: waiting for an address: %w", w.Field, ctx.Err())
	}
	return false, nil
}

// reportDemand counts a call that waits for any address of a pool, and reports the pool as exhausted on this node, once
// per call. If it returns true, also with an error, the caller ends with doneWaiting.
func (ob *acquirer) reportDemand(ctx context.Context, p *pool, w poolconf.Want, already bool) (bool, error) {
	if already || w.Addr.IsValid() {
		return already, nil
	}
	ob.state.mu.Lock()
	p.waiting++
	ob.state.mu.Unlock()
	return true, ob.registry.setExhausted(ctx, p, true)
}

// allocateUnclaimed allocates an address of an unclaimed block, or one that is lent to any node; false if there is
// none. It requests nothing from other nodes.
func (ob *acquirer) allocateUnclaimed(ctx context.Context, w poolconf.Want, h holder) (netip.Addr, bool, error) {
	ctx, cancel := context.WithTimeout(ctx, ob.cfg.WaitLimit+time.Second)
	defer cancel()
	p, release, err := ob.affinity.lockPool(ctx, w)
	if err != nil {
		return netip.Addr{}, false, err
	}
	defer release()
	for {
		if a, ok, err := ob.allocateLocal(ctx, w, h, false); ok || err != nil {
			return a, ok, err
		}
		if got, err := ob.claimMore(ctx, p, w); !got || err != nil {
			return netip.Addr{}, false, err
		}
	}
}

// claimMore claims a block for a want, or a single address; false if there is none.
func (ob *acquirer) claimMore(ctx context.Context, p *pool, w poolconf.Want) (bool, error) {
	if got, err := ob.affinity.takeBackLent(ctx, p, w); got || err != nil {
		return got, err
	}
	if w.Addr.IsValid() {
		return ob.specificAddress(ctx, p, w)
	}
	if got, err := ob.claimBlock(ctx, p, w); got || err != nil {
		return got, err
	}
	if got, err := ob.borrow(ctx, p, w); got || err != nil {
		return got, err
	}
	return ob.takeOverBlock(ctx, p, w)
}

// claimBlock claims a block for a want; false if no block is left.
func (ob *acquirer) claimBlock(ctx context.Context, p *pool, w poolconf.Want) (bool, error) {
	const tries = 32
	for try := range tries {
		cidr, ok, err := ob.state.candidate(p, w, try > 1)
		if err != nil {
			return false, err
		}
		if ok {
			if got, err := ob.affinity.claimBlock(ctx, p, cidr); got || err != nil {
				return got, err
			}
		} else if try > 0 {
			return false, nil
		}
		if try == 0 { // the known blocks may be stale: list them before giving up
			if err := ob.registry.refreshUnlessWatching(ctx, p); err != nil {
				return false, err
			}
		}
	}
	return false, nil
}

// takeOverBlock takes over a block of a dead node: it moves the block affinity of a node whose Node object is gone to
// this node (for the addresses of VMs see vm_reclaim.go). An unreachable node keeps its blocks: its pods may be
// alive. Where this node itself has no Node object, missing objects prove nothing; with a separate controller, the
// block must also be marked as orphaned.
func (ob *acquirer) takeOverBlock(ctx context.Context, p *pool, w poolconf.Want) (bool, error) {
	ob.state.mu.Lock()
	if most := p.spec.MaxBlocks; most > 0 && p.blockCount() >= most {
		ob.state.mu.Unlock()
		return false, nil
	}
	var blocks []model.AddressBlock
	for _, spec := range p.remote {
		if p.hasAddressFor(spec.CIDR, w) && (spec.Orphaned || !ob.cfg.SeparateController) {
			blocks = append(blocks, spec)
		}
	}
	ob.state.mu.Unlock()
	for _, spec := range blocks {
		gone, err := ob.registry.isNodeGone(ctx, spec)
		if err != nil {
			return false, err
		}
		if !gone {
			continue
		}
		o, now, err := ob.registry.readBlock(ctx, p.name, spec.CIDR)
		if err != nil || now.Node != spec.Node || now.Claim != spec.Claim || ob.cfg.SeparateController && !now.Orphaned {
			return false, store.IgnoreConflict(err)
		}
		got, now, err := ob.registry.updateBlock(ctx, o, now, func(s *model.AddressBlock, claim string) {
			s.Node, s.Claim = ob.cfg.Node, claim
		})
		if err != nil {
			return false, store.IgnoreConflict(err)
		}
		ob.cfg.Log.Warn("agent took over a block of a deleted node", "pool", p.name, "block", spec.CIDR.String(),
			"node", spec.Node)
		if err := ob.affinity.markClaimed(ctx, p, spec.CIDR, false); err != nil {
			return false, err
		}
		ob.affinity.addBlock(p, got, now)
		return true, ob.journal.save()
	}
	return false, nil
}

// doneWaiting notes that a call no longer waits. The reconciler clears the node's demand later.
func (ob *acquirer) doneWaiting(p *pool) {
	ob.state.mu.Lock()
	defer ob.state.mu.Unlock()
	p.waiting--
	ob.kick.Notify()
}

// allocateAny allocates an address from the first of several pools that has one.
func (ob *acquirer) allocateAny(ctx context.Context, wants []poolconf.Want, h holder) (netip.Addr, error) {
	if len(wants) == 1 {
		return ob.allocate(ctx, wants[0], h)
	}
	for _, w := range wants {
		if a, ok, err := ob.allocateLocal(ctx, w, h, false); ok || err != nil {
			return a, err
		}
	}
	for _, w := range wants {
		a, ok, err := ob.allocateUnclaimed(ctx, w, h)
		if errors.Is(err, store.ErrNoAnswer) {
			return ob.allocateCooling(ctx, wants, h, err)
		}
		if ok || err != nil {
			return a, err
		}
	}
	var all []string
	for _, w := range wants {
		a, err := ob.retryAcquire(ctx, w, h, ob.cfg.WaitLimit/2)
		var f *model.Error
		if err == nil || !errors.As(err, &f) || f.Code != model.CodeExhausted {
			return a, err
		}
		all = append(all, f.Msg)
	}
	return netip.Addr{}, model.Errorf(model.CodeExhausted, "add a pool, or delete pods", "%s", strings.Join(all, "; "))
}

// allocateCooling allocates an address in cooldown, when the datastore does not answer.
func (ob *acquirer) allocateCooling(ctx context.Context, wants []poolconf.Want, h holder, silence error) (netip.Addr, error) {
	for _, w := range wants {
		if a, ok, err := ob.allocateLocal(ctx, w, h, true); ok || err != nil {
			return a, err
		}
	}
	return netip.Addr{}, storeSilent(wants[0], silence)
}

// resolve adds the wants of a configuration that names only a pool: an address of each family.
func (ob *acquirer) resolve(ctx context.Context, s *poolconf.Settings) error {
	if s.Pool == "" {
		return nil
	}
	ob.state.mu.Lock()
	p := ob.state.poolLocked(s.Pool)
	known := len(p.spec.Regions) > 0
	ob.state.mu.Unlock()
	if !known {
		_, release, err := ob.affinity.lockPool(ctx, poolconf.Want{Pool: s.Pool, Field: "ipam.pool"})
		if err != nil {
			return err
		}
		release()
	}
	ob.state.mu.Lock()
	defer ob.state.mu.Unlock()
	if p.disabled() {
		return model.Errorf(model.CodeTryAgain, "choose another pool, or enable it",
			"ipam.pool: pool %q allocates no addresses: it is disabled or being deleted", s.Pool)
	}
	for _, bits := range []int{32, 128} {
		w := poolconf.Want{Pool: s.Pool, Field: "ipam.pool"}
		for _, r := range p.spec.Regions {
			if r.CIDR.Addr().BitLen() != bits {
				continue
			}
			if !w.Network.IsValid() {
				w.Network = r.CIDR
			}
			w.Spans = append(w.Spans, addrspan.Usable(r.CIDR))
		}
		if s.Gateway.IsValid() {
			w.Spans = addrspan.Without(w.Spans, addrspan.Single(s.Gateway))
		}
		if len(w.Spans) > 0 {
			s.Wants = append(s.Wants, w)
		}
	}
	if len(s.Wants) == 0 {
		return model.Errorf(model.CodeInvalidConf, "add one to its spec.regions", "ipam.pool: pool %q has no region", s.Pool)
	}
	return nil
}

// exhausted returns the error that says where the addresses are.
func (ob *acquirer) exhausted(p *pool, w poolconf.Want) error {
	ob.state.mu.Lock()
	defer ob.state.mu.Unlock()
	if w.Addr.IsValid() {
		delete(p.requested, w.Addr) // the next call requests it again
		r, _ := p.region(w.Addr)
		cidr := netip.PrefixFrom(w.Addr, r.BlockSize).Masked()
		with := p.remote[cidr]
		if p.justVanished(cidr, ob.clock.now()) {
			return model.Errorf(model.CodeTryAgain, "it is retried",
				"%s: block %s of address %s was another node's until now, and is not claimed for %s", w.Field, cidr, w.Addr,
				restoreGrace)
		}
		if b := p.blockOf(w.Addr); b != nil && ob.clock.now().Before(b.pausedUntil.Add(ob.cfg.WaitLimit)) {
			return model.Errorf(model.CodeTryAgain, "it is retried",
				"%s: block %s of address %s was found under this node's name: nothing is allocated from it for %s", w.Field,
				b.cidr, w.Addr, restoreGrace)
		} else if b != nil {
			with.Node, _, _ = strings.Cut(b.spec.Lent[w.Addr], "/")
		}
		return model.Errorf(model.CodeTryAgain, "it is free when that node releases it",
			"%s: address %s is with node %q, which does not answer", w.Field, w.Addr, with.Node)
	}
	for _, b := range p.order {
		// Also if the time ended while this call waited.
		if ob.clock.now().Before(b.pausedUntil.Add(ob.cfg.WaitLimit)) && w.Overlaps(b.cidr) {
			return model.Errorf(model.CodeTryAgain, "it is retried",
				"%s: no address is free in %s of pool %q: block %s was found under this node's name, and nothing is allocated from it for %s",
				w.Field, w.ID(), p.name, b.cidr, restoreGrace)
		}
	}
	nodes := map[string]bool{}
	for cidr, b := range p.remote {
		for _, s := range w.Spans {
			if s.Overlaps(cidr) {
				nodes[b.Node] = true
			}
		}
	}
	if most := p.spec.MaxBlocks; most > 0 && p.blockCount() >= most {
		return model.Errorf(
			model.CodeExhausted,
			"raise it, or delete pods of this node",
			"%s: no address is free in %s of pool %q: this node has %d blocks already, and may have no more (maxBlocksPerNode %d)",
			w.Field,
			w.ID(),
			p.name,
			p.blockCount(),
			most,
		)
	}
	here := 0
	for a := range p.held {
		if addrspan.In(w.Spans, a) {
			here++
		}
	}
	return model.Errorf(model.CodeExhausted, "widen the range, or delete pods that use it",
		"%s: no address is free in %s of pool %q: %d of %d are held on this node, and %d other nodes have the rest",
		w.Field, w.ID(), p.name, here, addrspan.Count(w.Spans), len(nodes))
}
