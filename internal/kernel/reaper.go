// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
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
	// retryAfter is how long it waits after the kernel refused.
	retryAfter = 200 * time.Millisecond
)

// Reaper deletes the links that Release left behind, and conntrack entries that are translated to their addresses. It
// has its own socket, so no other request waits for it.
type Reaper struct {
	conn *Conn
	log  *slog.Logger
	kick chan struct{}

	mu      sync.Mutex
	asked   uint64        // number of calls of Kick and Wait
	done    uint64        // the last call whose links are deleted
	died    time.Time     // time of the last Kick
	flows   []state.Flow  // to be flushed with the next group
	changed chan struct{} // closed when done increases
}

// NewReaper returns a reaper for the namespace of c. Run does the work.
func NewReaper(c *Conn, log *slog.Logger) *Reaper {
	return &Reaper{conn: c, log: log, kick: make(chan struct{}, 1), changed: make(chan struct{})}
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
	r.mu.Lock()
	defer r.mu.Unlock()
	r.flows = append(r.flows, flows...)
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

// Wait waits until every link that was released before is deleted, and every flow flushed. Run must be running.
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
		select {
		case <-ctx.Done():
			return nil
		case <-r.kick:
		}
		r.gather(ctx)
		if err := r.reap(ctx, sock); err != nil && ctx.Err() == nil {
			r.log.Error("reaper could not delete dead links, or flush connections to them", "component", "kernel", "err", err)
			r.sleep(ctx, retryAfter)
			r.Kick()
		}
	}
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

func (r *Reaper) reap(ctx context.Context, sock *rtnl.Socket) error {
	r.mu.Lock()
	upTo, flows := r.asked, r.flows
	r.flows = nil
	r.mu.Unlock()
	var flushed error
	if len(flows) > 0 {
		flushed = r.conn.tracked.FlushTranslated(r.conn.ns, flows)
	}
	err := errors.Join(flushed, sock.Send(ctx, []*rtnl.Message{link.DeleteGroup(ReaperGroup)}))
	r.mu.Lock()
	defer r.mu.Unlock()
	if flushed != nil {
		r.flows = append(r.flows, flows...)
	}
	if err != nil {
		return err
	}
	r.done = upTo
	close(r.changed)
	r.changed = make(chan struct{})
	return nil
}
