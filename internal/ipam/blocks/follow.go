// SPDX-License-Identifier: Apache-2.0

package blocks

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/notify"
)

const (
	often   = 500 * time.Millisecond // while something is under way
	seldom  = 30 * time.Second       // otherwise
	another = 2 * time.Second        // until a watch that broke is begun again

	scarcity = time.Minute // how long nobody keeps more than it needs when a pool was exhausted for somebody
)

// follower hears what changes in the store, and has everything done that no ADD waits for.
type follower struct {
	cfg       *Config
	kick      notify.Chan
	clock     *clock
	mem       *memory
	namesakes *namesakes
	journal   *journalFile
	chooser   *chooser
	registry  *registry
	requests  *requests
	affinity  *affinity
	returner  *returner
}

// run asks the store for nothing before an address of a pool has been wanted here.
func (fo *follower) run(ctx context.Context) error {
	if fo.cfg.Objects == nil {
		<-ctx.Done()
		return ctx.Err()
	}
	for !fo.mem.inUse() {
		select {
		case <-fo.kick:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	for {
		if err := fo.follow(ctx); err != nil && ctx.Err() == nil {
			fo.cfg.Log.Warn("blocks are not followed", "err", err)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-fo.cfg.After(another):
		}
	}
}

// follow works along one watch.
func (fo *follower) follow(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	events, err := fo.cfg.Objects.Watch(ctx, store.AddressPools(), store.AddressBlocks())
	if err != nil {
		return err
	}
	fo.mem.mu.Lock()
	fo.mem.synced = false
	fo.mem.catalog.begin()
	fo.mem.mu.Unlock()
	defer fo.mem.setLive(false)
	for {
		select {
		case ev, ok := <-events:
			if !ok {
				return errors.New("the watch ended")
			}
			if ev.Type == store.Synced {
				fo.mem.setLive(true)
			}
			if fo.hear(ev) {
				fo.kick.Notify()
			}
			continue
		case <-ctx.Done():
			return ctx.Err()
		case <-fo.kick:
		case <-fo.cfg.After(fo.pause()):
		}
		if err := fo.tend(ctx); err != nil && ctx.Err() == nil {
			fo.cfg.Log.Warn("blocks", "err", err)
			select { // not at once again
			case <-fo.cfg.After(often):
			case <-ctx.Done():
			}
		}
	}
}

// pause is how long nothing has to be looked at.
func (fo *follower) pause() time.Duration {
	fo.mem.mu.Lock()
	defer fo.mem.mu.Unlock()
	for _, p := range fo.mem.pools {
		if p.tight() || p.stale || len(p.resting) > 0 {
			return often
		}
		for _, b := range p.order {
			if b.stands == releasing || b.stale || len(b.spec.Asked) > 0 {
				return often
			}
		}
	}
	if fo.namesakes.any() {
		return min(seldom, fo.cfg.Idle, fo.cfg.Gone/8)
	}
	return min(seldom, fo.cfg.Idle)
}

// hear notes an event; true when there is something to do. What it says of this node's own things may be older than
// what this node wrote, so it is only a reason to look.
func (fo *follower) hear(ev store.Event) bool {
	fo.mem.mu.Lock()
	defer fo.mem.mu.Unlock()
	switch {
	case ev.Type == store.Synced:
		fo.mem.catalog.end()
		fo.mem.unsaved = true
		return true
	case ev.Type == store.Faulty:
		return false
	case ev.Object.Key.Kind == store.AddressPools().Kind:
		news := fo.mem.hearPool(ev)
		p := fo.mem.pools[ev.Object.Key.Name]
		if p == nil {
			return news
		}
		if p.object.Version == ev.Object.Version && ev.Type != store.Deleted {
			return news
		}
		p.stale = true
		return true
	}
	spec, err := ev.Object.AddressBlock()
	if err != nil {
		return false
	}
	fo.registry.hearRival(spec, ev.Type == store.Deleted)
	p := fo.mem.pools[spec.Pool]
	if p == nil && ev.Type != store.Deleted && fo.named(spec) {
		// a machine before this one used the pool: nobody else gives that back
		p = fo.mem.pool(spec.Pool)
	}
	if p == nil {
		return false
	}
	if spec.Node != fo.cfg.Node {
		if ev.Type == store.Deleted {
			delete(p.others, spec.CIDR)
		} else {
			p.others[spec.CIDR] = spec
		}
		p.tell()
	}
	news := ev.Type != store.Deleted &&
		(spec.Node == fo.cfg.Node && p.blocks[spec.CIDR] == nil || fo.unknownSingle(p, spec))
	fo.mem.synced = fo.mem.synced && !news
	for _, b := range p.order {
		if b.parent == spec.CIDR && (ev.Type == store.Deleted || b.object.Version != ev.Object.Version) {
			b.stale, news = true, true
		}
	}
	return news || p.tight()
}

// named reports whether a block, or an address that it ceded, is in this node's name.
func (fo *follower) named(spec model.AddressBlock) bool {
	if spec.Node == fo.cfg.Node {
		return true
	}
	for _, with := range spec.Ceded {
		if claim, is := strings.CutPrefix(with, fo.cfg.Node+"/"); is && claim != "" {
			return true
		}
	}
	return false
}

// tend does what is to be done.
func (fo *follower) tend(ctx context.Context) error {
	var errs []error
	fo.chooser.expectCluster()
	fo.mem.mu.Lock()
	var pools []*pool
	for _, p := range fo.mem.pools {
		pools = append(pools, p)
	}
	synced := fo.mem.synced
	fo.mem.synced = true
	fo.mem.mu.Unlock()
	synced = !fo.namesakes.greetings() && synced
	for _, p := range pools {
		if err := fo.tendPool(ctx, p, !synced); err != nil {
			errs = append(errs, err)
			fo.mem.mu.Lock()
			fo.mem.synced = fo.mem.synced && synced
			fo.mem.mu.Unlock()
		}
	}
	if len(errs) == 0 {
		errs = append(errs, fo.greeted())
	}
	errs = append(errs, fo.requests.requestCalico(ctx))
	fo.mem.mu.Lock()
	unsaved := fo.mem.unsaved
	fo.mem.mu.Unlock()
	if unsaved {
		errs = append(errs, fo.journal.save())
	}
	return errors.Join(errs...)
}

func (fo *follower) tendPool(ctx context.Context, p *pool, sync bool) error {
	select {
	case p.turn <- struct{}{}:
		defer func() { <-p.turn }()
	case <-ctx.Done():
		return ctx.Err()
	}
	fo.affinity.rinse(ctx, p) // it needs no store
	if sync {
		if err := fo.sync(ctx, p); err != nil {
			return err
		}
	}
	if err := fo.freshen(ctx, p); err != nil {
		return err
	}
	return errors.Join(fo.coverExpected(ctx, p), fo.returner.absorb(ctx, p), fo.greet(ctx, p), fo.returner.quiet(ctx, p),
		fo.returner.unreserve(ctx, p), fo.returner.claims(ctx, p), fo.returner.answer(ctx, p), fo.returner.refuse(ctx, p),
		fo.returner.giveBack(ctx, p), fo.stock(ctx, p))
}

// stock claims spare blocks. The caller has the pool's turn.
func (fo *follower) stock(ctx context.Context, p *pool) error {
	fo.mem.mu.Lock()
	var short []want
	full := p.full || p.closed() || fo.clock.now().Sub(p.scarce) < scarcity
	for _, d := range p.wants {
		if !full && p.object.Version != "" && !p.spare(d.want, fo.clock.now(), nil, fo.mem.spareOf(p, d.want)) {
			short = append(short, d.want)
		}
	}
	fo.mem.mu.Unlock()
	for _, w := range short {
		got, err := fo.affinity.takeBack(ctx, p, w)
		if err == nil && !got {
			got, err = fo.spareBlock(ctx, p, w)
		}
		if err != nil {
			return err
		}
		if !got {
			fo.mem.mu.Lock()
			p.full = true
			fo.mem.mu.Unlock()
		}
	}
	return nil
}

func (fo *follower) spareBlock(ctx context.Context, p *pool, w want) (bool, error) {
	for try := range 8 {
		cidr, ok, err := fo.mem.candidate(p, w, try > 0)
		if err != nil || !ok {
			return false, err
		}
		if got, err := fo.affinity.create(ctx, p, cidr); got || err != nil {
			return got, err
		}
	}
	return false, nil
}

// greet claims this node's blocks of a pool anew where a stranger has not seen that for long. The caller has the pool's
// turn.
func (fo *follower) greet(ctx context.Context, p *pool) error {
	if !fo.namesakes.wait() {
		return nil
	}
	for _, b := range fo.mem.ownBlocks(p) {
		there, err := fo.affinity.refresh(ctx, p, b)
		if err == nil && there && b.stands == owned {
			err = fo.affinity.renew(ctx, p, b)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// greeted notes that all pools were claimed anew, forgets strangers that are gone, and writes down who is left.
func (fo *follower) greeted() error {
	if fo.namesakes.greeted() {
		return fo.journal.save()
	}
	return nil
}

// coverExpected makes sure that pools have what is expected of them. The caller has the pool's turn.
func (fo *follower) coverExpected(ctx context.Context, p *pool) error {
	fo.mem.mu.Lock()
	var wants []want
	for _, w := range p.expected {
		wants = append(wants, w)
	}
	fo.mem.mu.Unlock()
	for _, w := range wants {
		if err := fo.affinity.cover(ctx, p, w); err != nil {
			return err
		}
	}
	return nil
}
