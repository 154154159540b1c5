// SPDX-License-Identifier: Apache-2.0

// Package pleg is the pod lifecycle event generator: it lists what runs, again and again, and tells what has changed
// since the last time.
package pleg

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// State is what a container is doing, as far as events are concerned.
type State string

// The states. A container that is not in a list is non-existent.
const (
	Running     State = "running"
	Exited      State = "exited"
	Unknown     State = "unknown"
	NonExistent State = "non-existent"
)

// Kind is what happened to a container.
type Kind string

// The kinds of events. ContainerChanged is made and filtered out: nobody consumes it.
const (
	ContainerStarted Kind = "ContainerStarted"
	ContainerDied    Kind = "ContainerDied"
	ContainerRemoved Kind = "ContainerRemoved"
	ContainerChanged Kind = "ContainerChanged"
)

// Event says what happened in a pod.
type Event struct {
	PodUID      string
	ContainerID string
	Kind        Kind
}

// Pods are the containers of all pods: pod uid → container id → state. Sandboxes count as containers.
type Pods map[string]map[string]State

// Generator makes events. Healthy tells whether it still does, and if not why.
type Generator interface {
	Start(ctx context.Context)
	Watch() <-chan Event
	Healthy() (bool, error)
}

// Config is what a Relister is made from.
type Config struct {
	List   func(ctx context.Context) (Pods, error)
	Period time.Duration // between two lists; 1 s when zero
	// Threshold is how old the last list may be before the generator counts as ill; 3 min when zero.
	Threshold time.Duration
	Capacity  int // of the event channel; 1000 when zero
	Now       func() time.Time
}

// Relister is the Generator that lists everything every second.
type Relister struct {
	cfg       Config
	events    chan Event
	discarded atomic.Uint64

	mu   sync.Mutex
	last time.Time // the end of the last good list
	err  error     // of the last list
	old  Pods
	// filtered counts events that nobody consumes.
	filtered atomic.Uint64
}

// New makes a Relister.
func New(cfg Config) *Relister {
	if cfg.Period == 0 {
		cfg.Period = time.Second
	}
	if cfg.Threshold == 0 {
		cfg.Threshold = 3 * time.Minute
	}
	if cfg.Capacity == 0 {
		cfg.Capacity = 1000
	}
	return &Relister{cfg: cfg, events: make(chan Event, cfg.Capacity)}
}

// Start lists until ctx ends.
func (r *Relister) Start(ctx context.Context) {
	go func() {
		tick := time.NewTicker(r.cfg.Period)
		defer tick.Stop()
		for {
			r.Relist(ctx)
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
		}
	}()
}

// Watch is the channel of events.
func (r *Relister) Watch() <-chan Event { return r.events }

// Discarded counts the events that were lost because the channel was full.
func (r *Relister) Discarded() uint64 { return r.discarded.Load() }

// Healthy tells whether the last good list is recent.
func (r *Relister) Healthy() (bool, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.last.IsZero() {
		return false, fmt.Errorf("pleg: not listed yet: %w", orNever(r.err))
	}
	if age := r.cfg.Now().Sub(r.last); age > r.cfg.Threshold {
		return false, fmt.Errorf("pleg: last listed %v ago, want at most %v: %w", age.Round(time.Millisecond),
			r.cfg.Threshold, orNever(r.err))
	}
	return true, nil
}

func orNever(err error) error {
	if err == nil {
		return context.DeadlineExceeded
	}
	return err
}

// Relist lists once and emits what has changed.
func (r *Relister) Relist(ctx context.Context) {
	now, err := r.cfg.List(ctx)
	r.mu.Lock()
	r.err = err
	if err != nil {
		r.mu.Unlock()
		return
	}
	old := r.old
	r.old, r.last = now, r.cfg.Now()
	r.mu.Unlock()
	for _, e := range Compare(old, now) {
		if e.Kind == ContainerChanged {
			r.filtered.Add(1)
			continue
		}
		select {
		case r.events <- e:
		default:
			r.discarded.Add(1)
		}
	}
}
