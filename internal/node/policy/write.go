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
		e.self()
		err := e.commit(ctx)
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
		if p.broken != nil || p.unsure || p.change != nil {
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
	e.doubts++
	if why != nil {
		*why++
	}
}

// commit writes what has changed, the node's tables first; the error is that of the node's own table. While not
// everything is known, the kernel stays as it is.
func (e *Enforcer) commit(ctx context.Context) error {
	e.writes.take()
	known, err := e.writeNode(ctx)
	e.writes.end()
	if known {
		e.writePods(ctx)
	}
	return err
}

// writeNode writes what has changed in the node's tables, and has what has changed in pods be written next; false while
// not everything is known. It is the caller's turn.
func (e *Enforcer) writeNode(ctx context.Context) (known bool, err error) {
	e.mu.Lock()
	if !e.ready() {
		e.mu.Unlock()
		return false, nil
	}
	whole, begun := !e.right, e.cfg.Now()
	changes, needless := e.changes(), e.needless()
	e.mu.Unlock()
	defer e.show()
	defer e.bar(ctx)
	if whole {
		return true, e.whole(ctx)
	}
	for _, c := range changes {
		switch {
		case c.Place == policy.Place{}:
			err = e.change(ctx, c)
		case c.Place.OnNode():
			err := e.write(ctx, e.cfg.Host, c)
			e.mu.Lock()
			e.ported, e.bridges = !c.Gone, err
			if err == nil {
				e.unwritten = ""
			}
			e.mu.Unlock()
		}
	}
	e.mu.Lock()
	written := err == nil && e.bridges == nil
	e.queue(changes, written)
	if written {
		e.spare(needless)
	}
	var tables map[policy.Place]state.Table
	if e.bridges != nil {
		tables = e.tables(policy.Place{Ports: true})
	}
	if len(changes) > 0 {
		e.stats.Transactions++
		e.stats.Took = e.cfg.Now().Sub(begun)
	}
	e.mu.Unlock()
	if tables != nil {
		e.putPorts(ctx, tables)
	}
	return true, err
}

// changes are what has changed since they were asked for, in the order in which it is written. The lock is held.
func (e *Enforcer) changes() []policy.Change {
	e.batch++
	return ordered(e.index.Changes())
}

// needless are the places in pods, of those that are to be looked at, which need no table. The lock is held.
func (e *Enforcer) needless() []policy.Place {
	var out []policy.Place
	for p, at := range e.places {
		if at.unsure || at.broken != nil {
			if _, needed := e.tables(p)[p]; !needed {
				out = append(out, p)
			}
		}
	}
	return out
}

// spare has the tables of places that needed none before the node's tables were written be taken away. The lock is
// held.
func (e *Enforcer) spare(needless []policy.Place) {
	for _, p := range needless {
		if at := e.places[p]; at != nil {
			at.needless = true
		}
	}
}

// queue has changes of tables in pods be written by writePods. Where the node's tables could not be, none is taken
// away. The lock is held.
func (e *Enforcer) queue(changes []policy.Change, nodeWritten bool) {
	for _, c := range changes {
		if c.Place.OnNode() {
			continue
		}
		at := e.placeAt(c.Place)
		// A change is to what the last one left; ahead of it was written the whole table, perhaps with this in it.
		if at.change != nil || e.batch <= at.ahead || c.Gone && !nodeWritten {
			at.unsure = true
		}
		at.change, at.needless = &c, c.Gone && nodeWritten
	}
}

// ordered has the node's tables be written before those in pods go, so that an interface whose packets are judged
// elsewhere from now on is judged all the time; and of those in pods the ones that go before those that come: two may
// be in one namespace.
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
	return slices.SortedStableFunc(slices.Values(in), func(a, b policy.Change) int {
		return cmp.Compare(step(a), step(b))
	})
}

// change changes the node's table.
func (e *Enforcer) change(ctx context.Context, c policy.Change) error {
	err := e.write(ctx, e.cfg.Host, c)
	if err == nil {
		return nil
	}
	if !errors.Is(err, kernel.ErrUnfit) {
		e.log.Warn("change of policies is refused; everything is written", "err", err)
	}
	return e.whole(ctx)
}

func (e *Enforcer) write(ctx context.Context, at *kernel.Conn, c policy.Change) error {
	e.writing(c.Place)
	if c.Gone {
		return at.RemoveTables(ctx, bare(c.Place))
	}
	if c.Made {
		return at.ApplyTables(ctx,
			append(c.Place.Beside(), state.Table{Family: c.Family, Name: c.Name, Sets: c.MakeSets, Chains: c.MakeChains}))
	}
	return at.Change(ctx, []state.TableChange{c.TableChange})
}

// whole makes the node's tables what they should be, and has those in pods be made so next. It is the turn of who
// writes the node's.
func (e *Enforcer) whole(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), writeTime)
	defer cancel()
	e.mu.Lock()
	_ = e.changes() // they are in the tables
	pods := e.podPlaces()
	tables := e.tables(append(pods, policy.Place{}, policy.Place{Ports: true})...)
	doubts := e.doubts
	e.stats.Wholes++
	e.stats.Transactions++
	e.right = false // until it is seen to be
	e.mu.Unlock()
	err := e.put(ctx, e.cfg.Host, tables, policy.Place{})
	e.mu.Lock()
	if err != nil {
		e.stats.Failures++
	}
	e.right = err == nil && e.doubts == doubts
	e.mu.Unlock()
	e.putPorts(ctx, tables)
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, p := range pods {
		_, needed := tables[p]
		at := e.placeAt(p)
		at.unsure, at.needless = true, err == nil && e.bridges == nil && !needed
	}
	return err
}

// put makes sure of the table of a place, or that there is none.
func (e *Enforcer) put(
	ctx context.Context, at *kernel.Conn, tables map[policy.Place]state.Table, p policy.Place,
) error {
	e.writing(p)
	if t, ok := tables[p]; ok {
		return at.ApplyTables(ctx, append(p.Beside(), t))
	}
	return at.RemoveTables(ctx, bare(p))
}

func (e *Enforcer) writing(p policy.Place) {
	if e.cfg.Writing != nil {
		e.cfg.Writing(p)
	}
}
