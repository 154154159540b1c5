// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/weft-net/weft/internal/kernel"
	"github.com/weft-net/weft/internal/notify"
	"github.com/weft-net/weft/internal/plan/plugin"
)

// linger is how long an agent keeps a bridge or a table without owners, because the next ADD is likely to need it.
const linger = 500 * time.Millisecond

// releaseQueue cleans up after a fast DEL: it keeps a record until its links are deleted, an address until no dead link
// can answer for it and connections to it are flushed, and shared objects for a while after their last owner.
type releaseQueue struct {
	owners   *owners
	cooling  *cooling
	locks    *lockSet
	records  *notifyingStore
	rollback *rollback
	reaper   *kernel.Reaper
	linger   time.Duration // of shared objects
	now      func() time.Time
	log      *slog.Logger

	mu     sync.Mutex
	dead   []Record    // released, their links may still exist
	held   []Record    // released, connections to their addresses could not be flushed yet
	idle   []idleOwner // the last attachments of their networks, which still own shared objects
	busy   bool        // a goroutine is processing dead and idle
	hurry  bool        // do not linger
	wake   notify.Chan
	waiter []chan struct{} // closed when the queue is empty
}

// idleOwner is the record of a network's last attachment, and when its shared objects are removed.
type idleOwner struct {
	rec Record
	due time.Time
}

// enqueue queues a released record, which is deleted once its links are gone.
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

// drain waits until the queue is empty, without lingering. Records whose connections could not be flushed stay in the ledger
// for the next agent.
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

// run processes the queue until it is empty.
func (q *releaseQueue) run() {
	for {
		q.mu.Lock()
		dead := q.dead
		q.dead = nil
		idle, held := len(q.idle), len(q.held)
		if len(dead)+idle == 0 {
			for _, done := range q.waiter {
				close(done)
			}
			q.waiter = nil
			if q.busy = held > 0; !q.busy {
				q.mu.Unlock()
				return
			}
		}
		q.mu.Unlock()
		switch {
		case len(dead) > 0:
			q.finish(dead)
		case idle > 0:
			q.removeIdle()
		default:
			q.awaitFlush()
		}
	}
}

// awaitFlush waits until connections to the addresses of a held record are flushed, or another record is enqueued.
func (q *releaseQueue) awaitFlush() {
	_, changed := q.reaper.Flushing(nil)
	q.mu.Lock()
	before := len(q.held)
	q.held = slices.DeleteFunc(q.held, func(rec Record) bool {
		flushing, _ := q.reaper.Flushing(addresses(rec))
		if !flushing {
			q.dead = append(q.dead, rec)
		}
		return !flushing
	})
	freed := before - len(q.held)
	q.mu.Unlock()
	if freed > 0 {
		return
	}
	select {
	case <-q.wake:
	case <-changed:
	}
}

// finish waits for the reaper and deletes the records.
func (q *releaseQueue) finish(dead []Record) {
	ctx, cancel := detached(context.Background())
	defer cancel()
	if err := q.reaper.Wait(ctx); err != nil {
		q.log.Warn("dead links were not deleted in time", "err", err)
	}
	for _, rec := range dead {
		if flushing, _ := q.reaper.Flushing(addresses(rec)); flushing {
			q.mu.Lock()
			q.held = append(q.held, rec)
			q.mu.Unlock()
			continue
		}
		q.cooling.end(rec.Request.Network, addresses(rec))
		if _, any := q.rollback.sharedObjects(rec); any && q.owners.last(rec.Key()) {
			q.mu.Lock()
			q.idle = append(q.idle, idleOwner{rec, q.now().Add(q.linger)})
			q.mu.Unlock()
			continue
		}
		err := q.unlessReplaced(rec, func(context.Context) error { return q.records.forget(rec.Key()) })
		if err != nil {
			q.log.Error("record of a released attachment cannot be deleted", "attachment", rec.Key().String(), "err", err)
		}
	}
}

// unlessReplaced calls f, unless a later ADD has replaced the released record. Each record has its own time limit: what the
// reaper or another record has waited for leaves no record behind.
func (q *releaseQueue) unlessReplaced(rec Record, f func(context.Context) error) error {
	ctx, cancel := detached(context.Background())
	defer cancel()
	release, err := q.locks.of(rec.Request.Network).Container(ctx, rec.Request.ContainerID)
	if err != nil {
		return err
	}
	defer release()
	if !q.owners.has(rec) {
		return nil
	}
	return f(ctx)
}

// removeIdle removes the next shared objects when they are due; it returns early if a record is enqueued.
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
	err := q.unlessReplaced(next.rec, func(ctx context.Context) error {
		if !q.owners.last(next.rec.Key()) {
			return q.records.forget(next.rec.Key()) // other attachments own the shared objects now
		}
		return locked(ctx, q.locks.main.Lock, func() error {
			if q.owners.last(next.rec.Key()) {
				shared, _ := q.rollback.sharedObjects(next.rec)
				shared.Host.Tables = plugin.SharedTables() // also those of attachments that were released before
				if err := q.rollback.removeShared(ctx, shared); err != nil {
					return err
				}
			}
			return q.records.forget(next.rec.Key())
		})
	})
	if err != nil {
		q.log.Error("shared objects without owners cannot be removed", "attachment", next.rec.Key().String(), "err", err)
	}
}
