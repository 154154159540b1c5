// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"context"
	"math"
	"sync"

	"golang.org/x/sync/semaphore"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/plan/plugin"
)

// Locks keep calls apart: one at a time for a container, any number for different containers, and none beside a GC. A
// container's lock is always taken before the gate (Together or Alone).
type Locks interface {
	Container(ctx context.Context, id string) (release func(), err error)
	Together(ctx context.Context) (release func(), err error)
	Alone(ctx context.Context) (release func(), err error)
}

// lockSet are the locks of networks. A plugin that the agent executes for an attachment, whose locks are held
// meanwhile, may have the agent allocate its addresses: that is recorded under a network of its own, and has locks of
// its own.
type lockSet struct {
	main     Locks
	ipamOnly Locks
}

// of returns the locks of a network.
func (l *lockSet) of(network string) Locks {
	if plugin.IsIPAMNetwork(network) {
		return l.ipamOnly
	}
	return l.main
}

// locked does f while holding a lock.
func locked(ctx context.Context, lock func(context.Context) (func(), error), f func() error) error {
	release, err := lock(ctx)
	if err != nil {
		return err
	}
	defer release()
	return f()
}

// memoryLocks are the locks of one process.
type memoryLocks struct {
	gate       *semaphore.Weighted
	mu         sync.Mutex
	containers map[string]*waiting
}

type waiting struct {
	turn  *semaphore.Weighted
	users int
}

func newMemoryLocks() *memoryLocks {
	return &memoryLocks{gate: semaphore.NewWeighted(math.MaxInt32), containers: map[string]*waiting{}}
}

// Container waits for the container's turn.
func (l *memoryLocks) Container(ctx context.Context, id string) (func(), error) {
	l.mu.Lock()
	w := l.containers[id]
	if w == nil {
		w = &waiting{turn: semaphore.NewWeighted(1)}
		l.containers[id] = w
	}
	w.users++
	l.mu.Unlock()
	leave := func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if w.users--; w.users == 0 {
			delete(l.containers, id)
		}
	}
	if err := w.turn.Acquire(ctx, 1); err != nil {
		leave()
		return nil, busy("container "+id, err)
	}
	return func() { w.turn.Release(1); leave() }, nil
}

// Together joins the calls that go side by side.
func (l *memoryLocks) Together(ctx context.Context) (func(), error) { return l.pass(ctx, 1) }

// Alone waits until no other call is under way and keeps new ones out.
func (l *memoryLocks) Alone(ctx context.Context) (func(), error) { return l.pass(ctx, math.MaxInt32) }

func (l *memoryLocks) pass(ctx context.Context, n int64) (func(), error) {
	if err := l.gate.Acquire(ctx, n); err != nil {
		return nil, busy("node", err)
	}
	return func() { l.gate.Release(n) }, nil
}

func busy(what string, err error) error {
	return model.Faultf(model.CodeTryAgain, "another call is under way", "%s: lock: %w", what, err)
}
