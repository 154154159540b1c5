// SPDX-License-Identifier: Apache-2.0

package blocks

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/ipam/claimindex"
	"github.com/weft-net/weft/internal/ipam/duplicatenode"
	"github.com/weft-net/weft/internal/ipam/poolconf"
	"github.com/weft-net/weft/internal/ipam/poolrequest"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/notify"
)

const (
	pollInterval = 500 * time.Millisecond // while something is pending
	idleInterval = 30 * time.Second       // otherwise
	maxRetry     = 4 * time.Second        // at most, between passes that fail
	watchRetry   = 2 * time.Second        // until a broken watch is restarted

	scarcityPeriod = time.Minute // how long no node claims spare blocks after a pool was exhausted on a node
)

// reconciler watches the datastore, and does all work that no ADD waits for.
type reconciler struct {
	cfg          *Config
	kick         notify.Chan
	clock        *clock
	state        *nodeState
	duplicates   *duplicatenode.Detector
	journal      *journalFile
	clusterPools *clusterPools
	registry     *registry
	requests     *poolrequest.Client
	affinity     *affinity
	claimed      *claimindex.Index
	releaser     *releaser

	followed bool // requestCalico is done; protected by the state's mutex
}

// run does not use the datastore before an address of a pool has been requested here.
func (fo *reconciler) run(ctx context.Context) error {
	if fo.cfg.Objects == nil {
		<-ctx.Done()
		return ctx.Err()
	}
	for !fo.state.inUse() {
		select {
		case <-fo.kick:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	for {
		if err := fo.watch(ctx); err != nil && ctx.Err() == nil {
			fo.cfg.Log.Warn("agent could not watch blocks", "err", err)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-fo.cfg.After(watchRetry):
		}
	}
}

// watch reconciles during one watch.
func (fo *reconciler) watch(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	events, err := fo.cfg.Objects.Watch(ctx, store.AddressPools(), store.AddressBlocks())
	if err != nil {
		return err
	}
	fo.state.mu.Lock()
	fo.state.synced = false
	fo.state.catalog.BeginResync()
	fo.state.mu.Unlock()
	defer func() { fo.state.setWatching(false); fo.claimed.WatchEnded() }()
	retry := pollInterval
	for {
		select {
		case ev, ok := <-events:
			if !ok {
				return errors.New("the watch ended")
			}
			if ev.Type == store.Synced {
				fo.state.setWatching(true)
			}
			if fo.handleEvent(ev) {
				fo.kick.Notify()
			}
			continue
		case <-ctx.Done():
			return ctx.Err()
		case <-fo.kick:
		case <-fo.cfg.After(fo.pause()):
		}
		if err := fo.reconcile(ctx); err != nil && ctx.Err() == nil {
			fo.cfg.Log.Warn("agent could not reconcile blocks", "err", err)
			select { // back off
			case <-fo.cfg.After(retry):
			case <-ctx.Done():
			}
			retry = min(2*retry, maxRetry)
			fo.kick.Notify() // what failed may be all that is pending
			continue
		}
		retry = pollInterval
	}
}

// pause returns the time until the next pass.
func (fo *reconciler) pause() time.Duration {
	fo.state.mu.Lock()
	defer fo.state.mu.Unlock()
	for _, p := range fo.state.pools {
		if p.exhausted() || p.stale || len(p.cooling) > 0 {
			return pollInterval
		}
		for _, b := range p.order {
			if b.state == releasing || b.stale || len(b.spec.Requested) > 0 {
				return pollInterval
			}
		}
	}
	if fo.duplicates.Any() {
		return min(idleInterval, fo.cfg.Idle, fo.cfg.NodeGoneAfter/8)
	}
	return min(idleInterval, fo.cfg.Idle)
}

// handleEvent applies an event, and reports whether there is work. An event about this node's own blocks may be older
// than its last write, so it only marks them as stale.
func (fo *reconciler) handleEvent(ev store.Event) bool {
	fo.state.mu.Lock()
	defer fo.state.mu.Unlock()
	switch {
	case ev.Type == store.Synced:
		fo.state.catalog.EndResync()
		fo.state.unsaved = true
		return true
	case ev.Type == store.Faulty:
		return false
	case ev.Object.Key.Kind == store.AddressPools().Kind:
		changed := fo.state.handlePoolEventLocked(ev)
		p := fo.state.pools[ev.Object.Key.Name]
		if p == nil {
			return changed
		}
		if p.object.Version == ev.Object.Version && ev.Type != store.Deleted {
			return changed
		}
		p.stale = true
		return true
	}
	spec, err := ev.Object.AddressBlock()
	if err != nil {
		return false
	}
	fo.registry.handleOverlapLocked(spec, ev.Type == store.Deleted)
	if ev.Type == store.Deleted {
		fo.claimed.BlockDeleted(spec.CIDR, spec.Claim)
	}
	p := fo.state.pools[spec.Pool]
	if p == nil && ev.Type != store.Deleted && fo.claimsHere(spec) {
		// an earlier host of this node used the pool: only this node can release that
		p = fo.state.poolLocked(spec.Pool)
	}
	if p == nil {
		return false
	}
	if spec.Node != fo.cfg.Node {
		if ev.Type == store.Deleted {
			p.vanished[spec.CIDR] = fo.clock.now()
			delete(p.remote, spec.CIDR)
		} else {
			p.remote[spec.CIDR] = spec
		}
		p.notifyLocked()
	}
	changed := ev.Type != store.Deleted &&
		(spec.Node == fo.cfg.Node && p.blocks[spec.CIDR] == nil || fo.unknownBorrowedLocked(p, spec))
	fo.state.synced = fo.state.synced && !changed
	for _, b := range p.order {
		if b.parent == spec.CIDR && (ev.Type == store.Deleted || b.object.Version != ev.Object.Version) {
			b.stale, changed = true, true
		}
	}
	return changed || p.exhausted()
}

// claimsHere reports whether a block, or an address that it lends, is in this node's name.
func (fo *reconciler) claimsHere(spec model.AddressBlock) bool {
	if spec.Node == fo.cfg.Node {
		return true
	}
	for _, with := range spec.Lent {
		if claim, is := strings.CutPrefix(with, fo.cfg.Node+"/"); is && claim != "" {
			return true
		}
	}
	return false
}

// reconcile makes one pass over all pools.
func (fo *reconciler) reconcile(ctx context.Context) error {
	var errs []error
	fo.clusterPools.expectCluster()
	fo.state.mu.Lock()
	var pools []*pool
	for _, p := range fo.state.pools {
		pools = append(pools, p)
	}
	synced := fo.state.synced
	fo.state.synced = true
	fo.state.mu.Unlock()
	synced = !fo.duplicates.ResyncDue() && synced
	for _, p := range pools {
		if err := fo.reconcilePool(ctx, p, !synced); err != nil {
			errs = append(errs, err)
			fo.state.mu.Lock()
			fo.state.synced = fo.state.synced && synced
			fo.state.mu.Unlock()
		}
	}
	if len(errs) == 0 {
		errs = append(errs, fo.markRenewed())
	}
	errs = append(errs, fo.requestCalico(ctx))
	fo.state.mu.Lock()
	unsaved := fo.state.unsaved
	fo.state.mu.Unlock()
	if unsaved {
		errs = append(errs, fo.journal.save())
	}
	return errors.Join(errs...)
}

func (fo *reconciler) reconcilePool(ctx context.Context, p *pool, sync bool) error {
	select {
	case p.claimLock <- struct{}{}:
		defer func() { <-p.claimLock }()
	case <-ctx.Done():
		return ctx.Err()
	}
	fo.affinity.flushCooled(ctx, p) // it needs no datastore
	if sync {
		if err := fo.sync(ctx, p); err != nil {
			return err
		}
	}
	if err := fo.refreshStale(ctx, p); err != nil {
		return err
	}
	return errors.Join(
		fo.coverExpected(ctx, p),
		fo.releaser.mergeLent(ctx, p),
		fo.renewBlocks(ctx, p),
		fo.releaser.clearDemand(ctx, p),
		fo.releaser.unreserve(ctx, p),
		fo.releaser.releaseClaims(ctx, p),
		fo.releaser.answerRequests(ctx, p),
		fo.releaser.refuseRequests(ctx, p),
		fo.releaser.releaseSurplus(ctx, p),
		fo.claimSpare(ctx, p),
	)
}

// claimSpare claims spare blocks. The caller has the pool's claim lock.
func (fo *reconciler) claimSpare(ctx context.Context, p *pool) error {
	fo.state.mu.Lock()
	var short []poolconf.Want
	full := p.noFreeBlock || p.disabled() || fo.clock.now().Sub(p.exhaustedAt) < scarcityPeriod
	for _, d := range p.demands {
		if !full && p.object.Version != "" && !p.hasFree(d.want, fo.clock.now(), nil, fo.state.spareTargetLocked(p, d.want)) {
			short = append(short, d.want)
		}
	}
	fo.state.mu.Unlock()
	for _, w := range short {
		got, err := fo.affinity.takeBackLent(ctx, p, w)
		if err == nil && !got {
			got, err = fo.spareBlock(ctx, p, w)
		}
		if err != nil {
			return err
		}
		if !got {
			fo.state.mu.Lock()
			p.noFreeBlock = true
			fo.state.mu.Unlock()
		}
	}
	return nil
}

func (fo *reconciler) spareBlock(ctx context.Context, p *pool, w poolconf.Want) (bool, error) {
	for try := range 8 {
		cidr, ok, err := fo.state.candidate(p, w, try > 0)
		if err != nil || !ok {
			return false, err
		}
		if got, err := fo.affinity.claimBlock(ctx, p, cidr); got || err != nil {
			return got, err
		}
	}
	return false, nil
}

// renewBlocks renews the claims of this node's blocks of a pool if another host of this node name must see that. The
// caller has the pool's claim lock.
func (fo *reconciler) renewBlocks(ctx context.Context, p *pool) error {
	if !fo.duplicates.RenewalDue() {
		return nil
	}
	for _, b := range fo.state.ownBlocks(p) {
		there, err := fo.affinity.refresh(ctx, p, b)
		if err == nil && there && b.state == owned {
			err = fo.affinity.renew(ctx, p, b)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// markRenewed records that the claims of all pools were renewed, forgets other hosts that are gone, and writes the
// journal if they changed.
func (fo *reconciler) markRenewed() error {
	if fo.duplicates.MarkRenewed() {
		return fo.journal.save()
	}
	return nil
}

// coverExpected makes sure that the pool has the expected ranges. The caller has the pool's claim lock.
func (fo *reconciler) coverExpected(ctx context.Context, p *pool) error {
	fo.state.mu.Lock()
	var wants []poolconf.Want
	for _, w := range p.expected {
		wants = append(wants, w)
	}
	fo.state.mu.Unlock()
	for _, w := range wants {
		if err := fo.affinity.cover(ctx, p, w); err != nil {
			return err
		}
	}
	return nil
}

// requestCalico requests that the controller follow Calico's pools, if this node allocates addresses of the cluster's
// network.
func (fo *reconciler) requestCalico(ctx context.Context) error {
	fo.state.mu.Lock()
	due := fo.cfg.SeparateController && !fo.followed && (fo.clusterPools.serving || len(fo.clusterPools.cluster) > 0)
	fo.state.mu.Unlock()
	if !due {
		return nil
	}
	if err := fo.requests.Create(ctx, model.PoolRequest{}); err != nil {
		return err
	}
	fo.state.mu.Lock()
	fo.followed = true
	fo.state.mu.Unlock()
	return nil
}
