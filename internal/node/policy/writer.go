// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
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

// writer writes what has changed, the node's tables before those in pods.
type writer struct {
	cfg     *Config
	log     *slog.Logger
	desired *desired
	node    *nodeTables
	pods    *podTables

	// writes is the turn of who writes the node's tables.
	writes turn
}

// keep writes what has changed until ctx ends, and puts right what others have changed.
func (wr *writer) keep(ctx context.Context, meddled <-chan struct{}) error {
	late := wr.cfg.After(period)
	for {
		var retry <-chan time.Time
		if wr.wrong() {
			retry = wr.cfg.After(again)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-wr.desired.due:
			select {
			case <-ctx.Done():
				return nil
			case <-wr.cfg.After(quiet):
			}
		case _, open := <-meddled:
			if !open {
				meddled = nil
				continue
			}
			wr.doubt(&wr.desired.stats.Meddled)
		case <-late:
			late = wr.cfg.After(period)
			wr.doubt(nil)
		case <-retry:
		case <-wr.node.showLate():
		}
		wr.node.self()
		err := wr.commit(ctx)
		if err != nil && ctx.Err() == nil {
			wr.log.Error("policies cannot be written; it is tried again", "err", err)
		}
	}
}

// wrong reports whether something is known not to be as it should.
func (wr *writer) wrong() bool {
	wr.desired.mu.Lock()
	defer wr.desired.mu.Unlock()
	if wr.desired.ready() && (!wr.node.right || len(wr.pods.stale) > 0) || wr.node.bridges != nil {
		return true
	}
	for _, p := range wr.pods.places {
		if p.broken != nil || p.unsure || p.change != nil {
			return true
		}
	}
	return false
}

// doubt has everything be looked at, and counts why.
func (wr *writer) doubt(why *uint64) {
	wr.desired.mu.Lock()
	defer wr.desired.mu.Unlock()
	wr.node.right = false
	wr.node.doubts++
	if why != nil {
		*why++
	}
}

// commit writes what has changed, the node's tables first; the error is that of the node's own table. While not
// everything is known, the kernel stays as it is.
func (wr *writer) commit(ctx context.Context) error {
	wr.writes.take()
	known, err := wr.writeNode(ctx)
	wr.writes.end()
	if known {
		wr.pods.writePods(ctx)
	}
	return err
}

// writeNode writes what has changed in the node's tables, and has what has changed in pods be written next; false while
// not everything is known. It is the caller's turn.
func (wr *writer) writeNode(ctx context.Context) (known bool, err error) {
	wr.desired.mu.Lock()
	if !wr.desired.ready() {
		wr.desired.mu.Unlock()
		return false, nil
	}
	whole, begun := !wr.node.right, wr.cfg.Now()
	changes, needless := wr.desired.changes(), wr.needless()
	wr.desired.mu.Unlock()
	defer wr.node.show()
	defer wr.node.bar(ctx)
	if whole {
		return true, wr.whole(ctx)
	}
	for _, c := range changes {
		switch {
		case c.Place == policy.Place{}:
			err = wr.change(ctx, c)
		case c.Place.OnNode():
			err := wr.node.write(ctx, wr.cfg.Host, c)
			wr.desired.mu.Lock()
			wr.node.ported, wr.node.bridges = !c.Gone, err
			if err == nil {
				wr.node.unwritten = ""
			}
			wr.desired.mu.Unlock()
		}
	}
	wr.desired.mu.Lock()
	written := err == nil && wr.node.bridges == nil
	wr.queue(changes, written)
	if written {
		wr.spare(needless)
	}
	var tables map[policy.Place]state.Table
	if wr.node.bridges != nil {
		tables = wr.desired.tables(policy.Place{Ports: true})
	}
	if len(changes) > 0 {
		wr.desired.stats.Transactions++
		wr.desired.stats.Took = wr.cfg.Now().Sub(begun)
	}
	wr.desired.mu.Unlock()
	if tables != nil {
		wr.node.putPorts(ctx, tables)
	}
	return true, err
}

// needless are the places in pods, of those that are to be looked at, which need no table. The lock is held.
func (wr *writer) needless() []policy.Place {
	var out []policy.Place
	for p, at := range wr.pods.places {
		if at.unsure || at.broken != nil {
			if _, needed := wr.desired.tables(p)[p]; !needed {
				out = append(out, p)
			}
		}
	}
	return out
}

// spare has the tables of places that needed none before the node's tables were written be taken away. The lock is
// held.
func (wr *writer) spare(needless []policy.Place) {
	for _, p := range needless {
		if at := wr.pods.places[p]; at != nil {
			at.needless = true
		}
	}
}

// queue has changes of tables in pods be written by writePods. Where the node's tables could not be, none is taken
// away. The lock is held.
func (wr *writer) queue(changes []policy.Change, nodeWritten bool) {
	for _, c := range changes {
		if c.Place.OnNode() {
			continue
		}
		at := wr.pods.placeAt(c.Place)
		// A change is to what the last one left; ahead of it was written the whole table, perhaps with this in it.
		if at.change != nil || wr.desired.batch <= at.ahead || c.Gone && !nodeWritten {
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
func (wr *writer) change(ctx context.Context, c policy.Change) error {
	err := wr.node.write(ctx, wr.cfg.Host, c)
	if err == nil {
		return nil
	}
	if !errors.Is(err, kernel.ErrUnfit) {
		wr.log.Warn("change of policies is refused; everything is written", "err", err)
	}
	return wr.whole(ctx)
}

// whole makes the node's tables what they should be, and has those in pods be made so next. It is the turn of who
// writes the node's.
func (wr *writer) whole(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), writeTime)
	defer cancel()
	wr.desired.mu.Lock()
	_ = wr.desired.changes() // they are in the tables
	pods := wr.desired.podPlaces()
	tables := wr.desired.tables(append(pods, policy.Place{}, policy.Place{Ports: true})...)
	doubts := wr.node.doubts
	wr.desired.stats.Wholes++
	wr.desired.stats.Transactions++
	wr.node.right = false // until it is seen to be
	wr.desired.mu.Unlock()
	err := wr.node.put(ctx, wr.cfg.Host, tables, policy.Place{})
	wr.desired.mu.Lock()
	if err != nil {
		wr.desired.stats.Failures++
	}
	wr.node.right = err == nil && wr.node.doubts == doubts
	wr.desired.mu.Unlock()
	wr.node.putPorts(ctx, tables)
	wr.desired.mu.Lock()
	defer wr.desired.mu.Unlock()
	for _, p := range pods {
		_, needed := tables[p]
		at := wr.pods.placeAt(p)
		at.unsure, at.needless = true, err == nil && wr.node.bridges == nil && !needed
	}
	return err
}
