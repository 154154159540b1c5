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

// Locks serialize calls: one at a time per container, any number for different containers, none during a GC. A
// container's lock is always acquired before the gate (RLock or Lock).
type Locks interface {
	Container(ctx context.Context, id string) (release func(), err error)
	RLock(ctx context.Context) (release func(), err error)
	Lock(ctx context.Context) (release func(), err error)
}

// lockSet holds the locks of networks. A foreign plugin that the agent executes, while the attachment's locks are held,
// may call the agent for IPAM. Such allocations are recorded under a network of their own, with separate locks.
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

// locked calls f while it holds a lock.
func locked(ctx context.Context, lock func(context.Context) (func(), error), f func() error) error {
	release, err := lock(ctx)
	if err != nil {
		return err
	}
	defer release()
	return f()
}

// processLocks are locks within one process.
type processLocks struct {
	gate       *semaphore.Weighted
	mu         sync.Mutex
	containers map[string]*containerLock
}

type containerLock struct {
	sem   *semaphore.Weighted
	users int
}

func newProcessLocks() *processLocks {
	return &processLocks{gate: semaphore.NewWeighted(math.MaxInt32), containers: map[string]*containerLock{}}
}

// Container locks a container.
func (l *processLocks) Container(ctx context.Context, id string) (func(), error) {
	l.mu.Lock()
	w := l.containers[id]
	if w == nil {
		w = &containerLock{sem: semaphore.NewWeighted(1)}
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
	if err := w.sem.Acquire(ctx, 1); err != nil {
		leave()
		return nil, busy("container "+id, err)
	}
	return func() { w.sem.Release(1); leave() }, nil
}

// RLock acquires the gate in shared mode, as ADD and DEL do.
func (l *processLocks) RLock(ctx context.Context) (func(), error) { return l.acquireGate(ctx, 1) }

// Lock acquires the gate exclusively, as GC does: it waits for the calls in progress and blocks new ones.
func (l *processLocks) Lock(ctx context.Context) (func(), error) {
	return l.acquireGate(ctx, math.MaxInt32)
}

func (l *processLocks) acquireGate(ctx context.Context, n int64) (func(), error) {
	if err := l.gate.Acquire(ctx, n); err != nil {
		return nil, busy("node", err)
	}
	return func() { l.gate.Release(n) }, nil
}

func busy(what string, err error) error {
	return model.Errorf(model.CodeTryAgain, "another call is under way", "%s: lock: %w", what, err)
}
