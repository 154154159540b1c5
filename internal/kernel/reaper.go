// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/kernel/interim/link"
	"github.com/weft-net/weft/internal/kernel/interim/rtnl"
)

// gather is how long the reaper waits for more dead links before it takes them: deleting a group costs the kernel's RCU
// wait once, whether it has one link or fifty.
const gather = 10 * time.Millisecond

// Reaper deletes the links that Release left behind. It has a socket of its own, so nobody waits behind it.
type Reaper struct {
	conn *Conn
	log  *slog.Logger
	kick chan struct{}

	mu      sync.Mutex
	asked   uint64        // how often Kick was called
	done    uint64        // the last call whose links are gone
	changed chan struct{} // closed when done grows
}

// NewReaper makes a reaper for the namespace of c.
func NewReaper(c *Conn, log *slog.Logger) *Reaper {
	return &Reaper{conn: c, log: log, kick: make(chan struct{}, 1), changed: make(chan struct{})}
}

// Kick tells the reaper that links wait.
func (r *Reaper) Kick() {
	r.mu.Lock()
	r.asked++
	r.mu.Unlock()
	select {
	case r.kick <- struct{}{}:
	default:
	}
}

// Wait waits until every link that was released before is gone.
func (r *Reaper) Wait(ctx context.Context) error {
	r.mu.Lock()
	want := r.asked
	for r.done < want {
		changed := r.changed
		r.mu.Unlock()
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-changed:
		}
		r.mu.Lock()
	}
	r.mu.Unlock()
	return nil
}

// Run reaps until ctx ends, beginning with what an earlier process left.
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
		select {
		case <-ctx.Done():
		case <-time.After(gather):
		}
		r.reap(sock)
	}
}

func (r *Reaper) reap(sock *rtnl.Socket) {
	r.mu.Lock()
	upTo := r.asked
	r.mu.Unlock()
	refused, err := sock.Send([]*rtnl.Message{link.DeleteGroup(Group)})
	for _, f := range refused {
		if !errors.Is(f, unix.ENODEV) { // the kernel's word for an empty group
			err = errors.Join(err, f)
		}
	}
	if err != nil {
		r.log.Error("links could not be reaped", "err", err)
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.done = upTo
	close(r.changed)
	r.changed = make(chan struct{})
}
