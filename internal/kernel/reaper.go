// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/weft-net/weft/internal/kernel/link"
	"github.com/weft-net/weft/internal/kernel/rtnl"
	"github.com/weft-net/weft/internal/state"
)

const (
	// quietPeriod is how long no link must have been released before the reaper deletes the dead ones, and latest the longest
	// wait for that: deleting a group costs the kernel's RCU wait once, whether it has one link or fifty, and during a
	// burst of DELs it would compete with them for the kernel's lock.
	quietPeriod = 10 * time.Millisecond
	maxWait     = 25 * time.Millisecond
	// retryAfter is how long it waits after the kernel refused, and longestRetry the longest pause before a flush that has
	// failed is tried again.
	retryAfter, longestRetry = 200 * time.Millisecond, 30 * time.Second
)

// Reaper deletes the links that Release left behind, and conntrack entries that are translated to their addresses. It
// has its own socket, so no other request waits for it.
type Reaper struct {
	conn  *Conn
	flush func([]state.Flow) error
	log   *slog.Logger
	kick  chan struct{}

	mu      sync.Mutex
	asked   uint64        // number of calls of Kick and Wait
	done    uint64        // the last call whose links are deleted
	died    time.Time     // time of the last Kick
	flushes []*flush      // those that are not done
	changed chan struct{} // closed when done increases, or a flush that had failed is done
}

// flush are the flows of one call of Flush. One that fails is tried again by itself, and no link or other flush waits for it.
type flush struct {
	flows []state.Flow
	pause time.Duration // before the next attempt; 0: it has not failed
	due   time.Time
}

// NewReaper returns a reaper for the namespace of c. Run does the work.
func NewReaper(c *Conn, log *slog.Logger) *Reaper {
	return &Reaper{
		conn: c, log: log, kick: make(chan struct{}, 1), changed: make(chan struct{}),
		flush: func(flows []state.Flow) error { return c.tracked.FlushTranslated(c.ns, flows) },
	}
}

// Kick notifies the reaper that links wait, and that more may follow.
func (r *Reaper) Kick() {
	now := time.Now()
	r.mu.Lock()
	r.died = now
	r.mu.Unlock()
	r.ask()
}

// Flush has the conntrack entries of flows deleted with the links that wait: for each flow the kernel walks its whole
// table, and a DEL need not wait for it. Kick or Wait must follow.
func (r *Reaper) Flush(flows []state.Flow) {
	if len(flows) == 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.flushes = append(r.flushes, &flush{flows: flows})
}

// Flushing reports whether connections that are translated to one of the addresses may still be tracked. When that changes
// after Wait, the channel is closed.
func (r *Reaper) Flushing(addrs []netip.Addr) (bool, <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.ContainsFunc(r.flushes, func(f *flush) bool {
		return slices.ContainsFunc(f.flows, func(f state.Flow) bool { return slices.Contains(addrs, f.ReplySrc) })
	}), r.changed
}

func (r *Reaper) ask() uint64 {
	r.mu.Lock()
	r.asked++
	n := r.asked
	r.mu.Unlock()
	select {
	case r.kick <- struct{}{}:
	default:
	}
	return n
}

// Wait waits until every link that was released before is deleted, and every flow flushed, or has failed to be: see
// Flushing. Run must be running.
func (r *Reaper) Wait(ctx context.Context) error {
	want := r.ask()
	r.mu.Lock()
	for r.done < want {
		changed := r.changed
		r.mu.Unlock()
		select {
		case <-ctx.Done():
			return fmt.Errorf("dead links are not deleted: %w", ctx.Err())
		case <-changed:
		}
		r.mu.Lock()
	}
	r.mu.Unlock()
	return nil
}

// Run deletes dead links until ctx ends, beginning with those of an earlier process.
func (r *Reaper) Run(ctx context.Context) error {
	sock, err := rtnl.Open(r.conn.ns)
	if err != nil {
		return err
	}
	defer func() { _ = sock.Close() }()
	r.Kick()
	for {
		if kicked := r.awaitKick(ctx); ctx.Err() != nil {
			return nil
		} else if !kicked {
			r.flushDue(false)
			continue
		}
		r.gather(ctx)
		if err := r.reap(ctx, sock); err != nil && ctx.Err() == nil {
			r.log.Error("reaper could not delete dead links", "component", "kernel", "err", err)
			r.sleep(ctx, retryAfter)
			r.Kick()
		}
	}
}

// awaitKick waits until it is kicked; false: a flush that has failed is due before.
func (r *Reaper) awaitKick(ctx context.Context) bool {
	var due <-chan time.Time
	if wait, any := r.nextFlush(); any {
		t := time.NewTimer(wait)
		defer t.Stop()
		due = t.C
	}
	select {
	case <-ctx.Done():
	case <-due:
	case <-r.kick:
		return true
	}
	return false
}

// gather waits until no more links are released, up to a limit.
func (r *Reaper) gather(ctx context.Context) {
	for end := time.Now().Add(maxWait); ctx.Err() == nil; {
		r.mu.Lock()
		wait := min(time.Until(r.died.Add(quietPeriod)), time.Until(end))
		r.mu.Unlock()
		if wait <= 0 {
			return
		}
		r.sleep(ctx, wait)
	}
}

func (r *Reaper) sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}

// reap flushes what was requested before, and deletes the links that were released before.
func (r *Reaper) reap(ctx context.Context, sock *rtnl.Socket) error {
	r.mu.Lock()
	upTo := r.asked
	r.mu.Unlock()
	r.flushDue(true)
	if err := sock.Send(ctx, []*rtnl.Message{link.DeleteGroup(ReaperGroup)}); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.done = upTo
	r.changedLocked()
	return nil
}

// nextFlush returns how long it takes until a flush that has failed is due; false: none has.
func (r *Reaper) nextFlush() (wait time.Duration, any bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, f := range r.flushes {
		if left := time.Until(f.due); f.pause > 0 && (!any || left < wait) {
			wait, any = left, true
		}
	}
	return wait, any
}

// flushDue flushes what is due: together what is new, each by itself if that fails, and what has failed before. Others
// adds what is new.
func (r *Reaper) flushDue(others bool) {
	var fresh, due []*flush
	var flows []state.Flow
	r.mu.Lock()
	for _, f := range r.flushes {
		switch {
		case f.pause == 0 && others:
			fresh, flows = append(fresh, f), append(flows, f.flows...)
		case f.pause > 0 && time.Until(f.due) <= 0:
			due = append(due, f)
		}
	}
	r.mu.Unlock()
	done := map[*flush]bool{}
	if len(fresh) > 0 && r.flush(flows) == nil {
		for _, f := range fresh {
			done[f] = true
		}
	} else {
		due = append(due, fresh...)
	}
	for _, f := range due {
		if err := r.flush(f.flows); err == nil {
			done[f] = true
		} else {
			r.postpone(f, err)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.flushes = slices.DeleteFunc(r.flushes, func(f *flush) bool { return done[f] })
	if len(done) > 0 {
		r.changedLocked()
	}
}

// postpone schedules the next attempt of a flush that has failed.
func (r *Reaper) postpone(f *flush, err error) {
	if f.pause == 0 {
		r.log.Error("connections to a released address could not be flushed; it is not allocated until they are, and the "+
			"agent retries", "component", "kernel", "address", f.flows[0].ReplySrc.String(), "err", err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	f.pause = min(max(2*f.pause, retryAfter), longestRetry)
	f.due = time.Now().Add(f.pause)
}

// changedLocked wakes those who wait.
func (r *Reaper) changedLocked() {
	close(r.changed)
	r.changed = make(chan struct{})
}
