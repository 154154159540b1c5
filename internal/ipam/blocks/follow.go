// SPDX-License-Identifier: Apache-2.0

package blocks

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/model"
)

const (
	often   = 500 * time.Millisecond // while something is under way
	seldom  = 30 * time.Second       // otherwise
	another = 2 * time.Second        // until a watch that broke is begun again

	scarcity = time.Minute // how long nobody keeps more than it needs when a pool was exhausted for somebody
)

// Run claims spare blocks, gives back empty ones and answers other nodes, until ctx ends. It asks the store for nothing
// before an address of a pool has been wanted here.
func (e *Engine) Run(ctx context.Context) error {
	if e.cfg.Objects == nil {
		<-ctx.Done()
		return ctx.Err()
	}
	for !e.inUse() {
		select {
		case <-e.kick:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	for {
		if err := e.follow(ctx); err != nil && ctx.Err() == nil {
			e.cfg.Log.Warn("blocks are not followed", "err", err)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-e.cfg.After(another):
		}
	}
}

func (e *Engine) inUse() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.used
}

// follow works along one watch.
func (e *Engine) follow(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	events, err := e.cfg.Objects.Watch(ctx, store.AddressPools(), store.AddressBlocks())
	if err != nil {
		return err
	}
	e.mu.Lock()
	e.synced = false
	e.catalog.begin()
	e.mu.Unlock()
	defer e.setLive(false)
	for {
		select {
		case ev, ok := <-events:
			if !ok {
				return errors.New("the watch ended")
			}
			if ev.Type == store.Synced {
				e.setLive(true)
			}
			if e.hear(ev) {
				e.wake()
			}
			continue
		case <-ctx.Done():
			return ctx.Err()
		case <-e.kick:
		case <-e.cfg.After(e.pause()):
		}
		if err := e.tend(ctx); err != nil && ctx.Err() == nil {
			e.cfg.Log.Warn("blocks", "err", err)
			select { // not at once again
			case <-e.cfg.After(often):
			case <-ctx.Done():
			}
		}
	}
}

func (e *Engine) setLive(live bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.live = live
}

// pause is how long nothing has to be looked at.
func (e *Engine) pause() time.Duration {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, p := range e.pools {
		if p.tight() || p.stale || len(p.resting) > 0 {
			return often
		}
		for _, b := range p.order {
			if b.stands == releasing || b.stale || len(b.spec.Asked) > 0 {
				return often
			}
		}
	}
	if len(e.strangers) > 0 {
		return min(seldom, e.cfg.Idle, e.cfg.Gone/8)
	}
	return min(seldom, e.cfg.Idle)
}

// hear notes an event; true when there is something to do. What it says of this node's own things may be older than what
// this node wrote, so it is only a reason to look.
func (e *Engine) hear(ev store.Event) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case ev.Type == store.Synced:
		e.catalog.end()
		e.unsaved = true
		return true
	case ev.Type == store.Faulty:
		return false
	case ev.Object.Key.Kind == store.AddressPools().Kind:
		news := e.hearPool(ev)
		p := e.pools[ev.Object.Key.Name]
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
	e.hearRival(spec, ev.Type == store.Deleted)
	p := e.pools[spec.Pool]
	if p == nil && ev.Type != store.Deleted && e.named(spec) { // a machine before this one used the pool: nobody else gives that back
		p = e.pool(spec.Pool)
	}
	if p == nil {
		return false
	}
	if spec.Node != e.cfg.Node {
		if ev.Type == store.Deleted {
			delete(p.others, spec.CIDR)
		} else {
			p.others[spec.CIDR] = spec
		}
		p.tell()
	}
	news := ev.Type != store.Deleted && (spec.Node == e.cfg.Node && p.blocks[spec.CIDR] == nil || e.unknownSingle(p, spec))
	e.synced = e.synced && !news
	for _, b := range p.order {
		if b.parent == spec.CIDR && (ev.Type == store.Deleted || b.object.Version != ev.Object.Version) {
			b.stale, news = true, true
		}
	}
	return news || p.tight()
}

// named reports whether a block, or an address that it ceded, is in this node's name.
func (e *Engine) named(spec model.AddressBlock) bool {
	if spec.Node == e.cfg.Node {
		return true
	}
	for _, with := range spec.Ceded {
		if claim, is := strings.CutPrefix(with, e.cfg.Node+"/"); is && claim != "" {
			return true
		}
	}
	return false
}

// tend does what is to be done.
func (e *Engine) tend(ctx context.Context) error {
	var errs []error
	e.expectCluster()
	e.mu.Lock()
	var pools []*pool
	for _, p := range e.pools {
		pools = append(pools, p)
	}
	synced := e.synced
	e.synced = true
	e.mu.Unlock()
	synced = !e.greetings() && synced
	for _, p := range pools {
		if err := e.tendPool(ctx, p, !synced); err != nil {
			errs = append(errs, err)
			e.mu.Lock()
			e.synced = e.synced && synced
			e.mu.Unlock()
		}
	}
	if len(errs) == 0 {
		errs = append(errs, e.greeted())
	}
	errs = append(errs, e.requestCalico(ctx))
	e.mu.Lock()
	unsaved := e.unsaved
	e.mu.Unlock()
	if unsaved {
		errs = append(errs, e.save())
	}
	return errors.Join(errs...)
}

func (e *Engine) tendPool(ctx context.Context, p *pool, sync bool) error {
	select {
	case p.turn <- struct{}{}:
		defer func() { <-p.turn }()
	case <-ctx.Done():
		return ctx.Err()
	}
	e.rinse(ctx, p) // it needs no store
	if sync {
		if err := e.sync(ctx, p); err != nil {
			return err
		}
	}
	if err := e.freshen(ctx, p); err != nil {
		return err
	}
	return errors.Join(e.coverExpected(ctx, p), e.absorb(ctx, p), e.greet(ctx, p), e.quiet(ctx, p), e.unreserve(ctx, p), e.claims(ctx, p), e.answer(ctx, p), e.refuse(ctx, p), e.giveBack(ctx, p), e.stock(ctx, p))
}

// stock claims spare blocks. The caller has the pool's turn.
func (e *Engine) stock(ctx context.Context, p *pool) error {
	e.mu.Lock()
	var short []want
	full := p.full || p.closed() || e.now().Sub(p.scarce) < scarcity
	for _, d := range p.wants {
		if !full && p.object.Version != "" && !p.spare(d.want, e.now(), nil, e.spareOf(p, d.want)) {
			short = append(short, d.want)
		}
	}
	e.mu.Unlock()
	for _, w := range short {
		got, err := e.takeBack(ctx, p, w)
		if err == nil && !got {
			got, err = e.spareBlock(ctx, p, w)
		}
		if err != nil {
			return err
		}
		if !got {
			e.mu.Lock()
			p.full = true
			e.mu.Unlock()
		}
	}
	return nil
}

func (e *Engine) spareBlock(ctx context.Context, p *pool, w want) (bool, error) {
	for try := range 8 {
		cidr, ok, err := e.candidate(p, w, try > 0)
		if err != nil || !ok {
			return false, err
		}
		if got, err := e.create(ctx, p, cidr); got || err != nil {
			return got, err
		}
	}
	return false, nil
}
