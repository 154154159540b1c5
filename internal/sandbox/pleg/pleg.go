// SPDX-License-Identifier: Apache-2.0

// Package pleg is the pod lifecycle event generator: it lists containers periodically and emits an event for each change.
package pleg

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// State is the state of a container.
type State string

// The states of containers. A container that is not in a list is non-existent.
const (
	Running     State = "running"
	Exited      State = "exited"
	Unknown     State = "unknown"
	NonExistent State = "non-existent"
)

// Kind is the kind of an event.
type Kind string

// The kinds of events. ContainerChanged is filtered out, as in the kubelet.
const (
	ContainerStarted Kind = "ContainerStarted"
	ContainerDied    Kind = "ContainerDied"
	ContainerRemoved Kind = "ContainerRemoved"
	ContainerChanged Kind = "ContainerChanged"
)

// Event is a change of a container's state.
type Event struct {
	PodUID      string
	ContainerID string
	Kind        Kind
}

// Pods are the containers of all pods: pod UID → container ID → state. Sandboxes count as containers.
type Pods map[string]map[string]State

// Generator emits events. Healthy reports whether it still works, and the error if not.
type Generator interface {
	Start(ctx context.Context)
	Watch() <-chan Event
	Healthy() (bool, error)
}

// Config configures a Relister.
type Config struct {
	List   func(ctx context.Context) (Pods, error)
	Period time.Duration // between two lists; 1 s if zero
	// Threshold is the age of the last list above which the generator is unhealthy; 3 min if zero.
	Threshold time.Duration
	Capacity  int // of the event channel; 1000 if zero
	Now       func() time.Time
}

// Relister is a Generator that lists all containers every second.
type Relister struct {
	cfg       Config
	events    chan Event
	discarded atomic.Uint64

	mu   sync.Mutex
	last time.Time // the time of the last successful list
	err  error     // of the last list
	old  Pods
	// filtered counts ContainerChanged events.
	filtered atomic.Uint64
}

// New returns a Relister.
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

// Watch returns the channel of events.
func (r *Relister) Watch() <-chan Event { return r.events }

// Discarded returns the number of events that were dropped because the channel was full.
func (r *Relister) Discarded() uint64 { return r.discarded.Load() }

// Healthy reports whether the last successful list is recent.
func (r *Relister) Healthy() (bool, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.last.IsZero() {
		return false, fmt.Errorf("pleg: not listed yet: %w", orDeadlineExceeded(r.err))
	}
	if age := r.cfg.Now().Sub(r.last); age > r.cfg.Threshold {
		return false, fmt.Errorf("pleg: last listed %v ago, want at most %v: %w", age.Round(time.Millisecond),
			r.cfg.Threshold, orDeadlineExceeded(r.err))
	}
	return true, nil
}

func orDeadlineExceeded(err error) error {
	if err == nil {
		return context.DeadlineExceeded
	}
	return err
}

// Relist lists once and emits events for the changes.
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
