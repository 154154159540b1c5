// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/weft-net/weft/internal/kernel"
	"github.com/weft-net/weft/internal/notify"
	"github.com/weft-net/weft/internal/plan/plugin"
)

// linger is how long an agent keeps a bridge or a table without owners, because the next ADD will want it.
const linger = 500 * time.Millisecond

// releaseQueue looks after what a fast DEL leaves: a record until its links are dead, an address until nobody can
// answer for it, shared objects for a while after their last owner.
type releaseQueue struct {
	owners  *owners
	cooling *cooling
	locks   *lockSet
	records *recordStore
	undoer  *undoer
	reaper  *kernel.Reaper
	linger  time.Duration // of shared objects
	now     func() time.Time
	log     *slog.Logger

	mu     sync.Mutex
	dead   []Record    // released, their links perhaps not yet gone
	idle   []idleOwner // the last of their networks, which still hold shared objects
	busy   bool        // a goroutine works on dead and idle
	hurry  bool        // do not linger
	wake   notify.Chan
	waiter []chan struct{} // for nothing to be left
}

// idleOwner is the record of the last attachment of a network, and when what it shared is removed.
type idleOwner struct {
	rec Record
	due time.Time
}

// enqueue leaves a released record to a goroutine that forgets it when its links are dead.
func (q *releaseQueue) enqueue(rec Record) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.dead = append(q.dead, rec)
	q.reaper.Kick()
	q.wake.Notify()
	if !q.busy {
		q.busy = true
		go q.run()
	}
}

// drain waits until nothing is left to look after, without lingering.
func (q *releaseQueue) drain(ctx context.Context) error {
	q.mu.Lock()
	q.hurry = true
	if !q.busy {
		q.mu.Unlock()
		return nil
	}
	done := make(chan struct{})
	q.waiter = append(q.waiter, done)
	q.wake.Notify()
	q.mu.Unlock()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// run works until nothing is left.
func (q *releaseQueue) run() {
	for {
		q.mu.Lock()
		dead := q.dead
		q.dead = nil
		if len(dead)+len(q.idle) == 0 {
			q.busy = false
			for _, done := range q.waiter {
				close(done)
			}
			q.waiter = nil
			q.mu.Unlock()
			return
		}
		q.mu.Unlock()
		if len(dead) > 0 {
			q.finish(dead)
			continue
		}
		q.removeIdle()
	}
}

// finish waits for the reaper and forgets the records.
func (q *releaseQueue) finish(dead []Record) {
	ctx, cancel := patient(context.Background())
	defer cancel()
	if err := q.reaper.Wait(ctx); err != nil {
		q.log.Warn("dead links are not gone yet", "err", err)
	}
	for _, rec := range dead {
		q.cooling.end(rec.Request.Network, addresses(rec))
		if _, any := q.undoer.sharedOf(rec); any && q.owners.last(rec.Key()) {
			q.mu.Lock()
			q.idle = append(q.idle, idleOwner{rec, q.now().Add(q.linger)})
			q.mu.Unlock()
			continue
		}
		if err := q.unlessReplaced(ctx, rec, func() error { return q.records.forget(rec.Key()) }); err != nil {
			q.log.Error("released record stays", "attachment", rec.Key().String(), "err", err)
		}
	}
}

// unlessReplaced does something about a released record, unless another ADD has taken its place.
func (q *releaseQueue) unlessReplaced(ctx context.Context, rec Record, f func() error) error {
	release, err := q.locks.of(rec.Request.Network).Container(ctx, rec.Request.ContainerID)
	if err != nil {
		return err
	}
	defer release()
	if !q.owners.has(rec) {
		return nil
	}
	return f()
}

// removeIdle waits until the next shared objects are due, or for something to be enqueued, and removes them.
func (q *releaseQueue) removeIdle() {
	q.mu.Lock()
	next, hurry := q.idle[0], q.hurry
	q.mu.Unlock()
	if wait := next.due.Sub(q.now()); wait > 0 && !hurry {
		timer := time.NewTimer(wait)
		defer timer.Stop()
		select {
		case <-q.wake:
			return
		case <-timer.C:
		}
	}
	q.mu.Lock()
	q.idle = q.idle[1:]
	q.mu.Unlock()
	ctx, cancel := patient(context.Background())
	defer cancel()
	err := q.unlessReplaced(ctx, next.rec, func() error {
		if !q.owners.last(next.rec.Key()) {
			return q.records.forget(next.rec.Key()) // others have come, they look after what they share
		}
		return locked(ctx, q.locks.main.Alone, func() error {
			if q.owners.last(next.rec.Key()) {
				shared, _ := q.undoer.sharedOf(next.rec)
				shared.Host.Tables = plugin.SharedTables() // those of its neighbors, too, that went before it
				if err := q.undoer.removeShared(ctx, shared); err != nil {
					return err
				}
			}
			return q.records.forget(next.rec.Key())
		})
	})
	if err != nil {
		q.log.Error("shared objects without owner stay", "attachment", next.rec.Key().String(), "err", err)
	}
}
