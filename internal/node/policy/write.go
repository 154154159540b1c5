// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/weft-net/weft/internal/kernel"
	"github.com/weft-net/weft/internal/plan/policy"
	"github.com/weft-net/weft/internal/state"
)

const (
	// quiet is how long events are gathered: a rollout changes many pods at once.
	quiet = 10 * time.Millisecond
	// again is when what could not be written is tried once more, period when everything is looked at without a sign.
	again  = time.Second
	period = 5 * time.Minute
	// writeTime bounds one look at everything.
	writeTime = 30 * time.Second
)

// keep writes what has changed until ctx ends, and puts right what others have changed.
func (e *Enforcer) keep(ctx context.Context, meddled <-chan struct{}) error {
	late := e.cfg.After(period)
	for {
		var retry <-chan time.Time
		if e.wrong() {
			retry = e.cfg.After(again)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-e.due:
			select {
			case <-ctx.Done():
				return nil
			case <-e.cfg.After(quiet):
			}
		case _, open := <-meddled:
			if !open {
				meddled = nil
				continue
			}
			e.doubt(&e.stats.Meddled)
		case <-late:
			late = e.cfg.After(period)
			e.doubt(nil)
		case <-retry:
		case <-e.showLate():
		}
		e.mu.Lock()
		e.self()
		err := e.commit(ctx)
		e.mu.Unlock()
		if err != nil && ctx.Err() == nil {
			e.log.Error("policies cannot be written; it is tried again", "err", err)
		}
	}
}

// wrong tells whether something is known not to be as it should.
func (e *Enforcer) wrong() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.ready() && (!e.right || len(e.stale) > 0) || e.bridges != nil {
		return true
	}
	for _, p := range e.places {
		if p.broken != nil {
			return true
		}
	}
	return false
}

// doubt has everything be looked at, and counts why.
func (e *Enforcer) doubt(why *uint64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.right = false
	if why != nil {
		*why++
	}
}

// commit writes what has changed; the error is that of the node's own table. While not everything is known, the kernel stays
// as it is. The lock is held.
func (e *Enforcer) commit(ctx context.Context) error {
	if !e.ready() {
		return nil
	}
	defer e.show()
	defer e.bar(ctx)
	begun := e.cfg.Now()
	if !e.right {
		return e.whole(ctx)
	}
	changes := e.index.Changes()
	var err error
	for _, c := range ordered(changes) {
		switch {
		case c.Place == policy.Place{}:
			err = e.change(ctx, c)
		case c.Place.OnNode():
			e.ported = !c.Gone
			if e.bridges = write(ctx, e.cfg.Host, c); e.bridges == nil {
				e.unwritten = ""
			}
		default:
			e.changePod(ctx, c)
		}
	}
	e.mendBroken(ctx)
	if e.bridges != nil {
		e.putPorts(ctx, e.tables(policy.Place{Ports: true}))
	}
	e.clearStale(ctx)
	if len(changes) > 0 {
		e.stats.Transactions++
		e.stats.Took = e.cfg.Now().Sub(begun)
	}
	return err
}

// ordered has the node's tables be written before those in pods go, so that an interface whose packets are judged elsewhere from now on is
// judged all the time; and of those in pods the ones that go before those that come: two may be in one namespace.
func ordered(in []policy.Change) []policy.Change {
	step := func(c policy.Change) int {
		switch {
		case c.Place.OnNode() && !c.Gone:
			return 0
		case c.Gone:
			return 1
		}
		return 2
	}
	return slices.SortedStableFunc(slices.Values(in), func(a, b policy.Change) int { return cmp.Compare(step(a), step(b)) })
}

// change changes the node's table.
func (e *Enforcer) change(ctx context.Context, c policy.Change) error {
	err := write(ctx, e.cfg.Host, c)
	if err == nil {
		return nil
	}
	if !errors.Is(err, kernel.ErrUnfit) {
		e.log.Warn("change of policies is refused; everything is written", "err", err)
	}
	return e.whole(ctx)
}

func write(ctx context.Context, at *kernel.Conn, c policy.Change) error {
	if c.Gone {
		return at.RemoveTables(ctx, bare(c.Place))
	}
	if c.Made {
		return at.ApplyTables(ctx, append(c.Place.Beside(), state.Table{Family: c.Family, Name: c.Name, Sets: c.MakeSets, Chains: c.MakeChains}))
	}
	return at.Change(ctx, []state.TableChange{c.TableChange})
}

// whole makes all tables what they should be. The lock is held.
func (e *Enforcer) whole(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), writeTime)
	defer cancel()
	_ = e.index.Changes() // they are in the tables
	tables := e.tables()
	e.stats.Wholes++
	e.stats.Transactions++
	err := put(ctx, e.cfg.Host, tables, policy.Place{})
	if err != nil {
		e.stats.Failures++
	}
	e.right = err == nil
	e.putPorts(ctx, tables)
	e.clearStale(ctx)
	for _, p := range e.podPlaces() {
		e.settle(ctx, p, tables)
	}
	return err
}

// put makes sure of the table of a place, or that there is none.
func put(ctx context.Context, at *kernel.Conn, tables map[policy.Place]state.Table, p policy.Place) error {
	if t, ok := tables[p]; ok {
		return at.ApplyTables(ctx, append(p.Beside(), t))
	}
	return at.RemoveTables(ctx, bare(p))
}
