// SPDX-License-Identifier: Apache-2.0

// Package facts is a node's picture of the cluster: immutable snapshots in the model's terms, and word that there is a
// new one. Everybody below (mesh, policy, attachments) plans from a snapshot and never asks a store.
//
// Changes are coalesced: a snapshot is made when nothing has changed for 20 ms, and at the latest 50 ms after the first
// change. While the source cannot be read, the last snapshot stays.
package facts

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/store"
)

const (
	quiet   = 20 * time.Millisecond
	longest = 50 * time.Millisecond
	// retry is how soon an unreadable source is asked again.
	retry = time.Second
)

// Source is where facts come from: a directory of manifests, later an API server.
type Source interface {
	// Watch tells what is there and then every change until ctx ends, when it closes the channel.
	Watch(ctx context.Context) (<-chan store.Event, error)
	// Cluster is the picture now.
	Cluster(ctx context.Context) (model.Cluster, error)
}

// Clock gives a channel that fires after a while; time.After is one.
type Clock func(time.Duration) <-chan time.Time

// Facts follows a source. Run does the work.
type Facts struct {
	source Source
	self   string
	log    *slog.Logger
	after  Clock
	synced chan struct{}

	mu          sync.Mutex
	cluster     *model.Cluster
	subscribers map[chan struct{}]bool
}

// New makes the facts of the node called self.
func New(source Source, self string, log *slog.Logger, clock Clock) *Facts {
	return &Facts{
		source: source, self: self, log: log.With("room", "facts"), after: clock,
		synced: make(chan struct{}), subscribers: map[chan struct{}]bool{},
	}
}

// Cluster is the newest snapshot, nil before the first. It must not be changed.
func (f *Facts) Cluster() *model.Cluster {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.cluster
}

// Synced is closed when there is a first snapshot.
func (f *Facts) Synced() <-chan struct{} { return f.synced }

// Subscribe gives a channel that holds a token while there is a snapshot the subscriber has not been told of, and what
// ends the subscription.
func (f *Facts) Subscribe() (changed <-chan struct{}, cancel func()) {
	c := make(chan struct{}, 1)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.subscribers[c] = true
	if f.cluster != nil {
		c <- struct{}{}
	}
	return c, func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.subscribers, c)
	}
}

// Run follows the source until ctx ends.
func (f *Facts) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	events, err := f.source.Watch(ctx)
	if err != nil {
		return fmt.Errorf("facts: %w", err)
	}
	var due, latest <-chan time.Time
	if !f.take(ctx) {
		due = f.after(retry)
	}
	for {
		select {
		case e, ok := <-events:
			if !ok {
				return nil
			}
			if e.Type == store.Faulty {
				f.log.Warn("manifest left out", "error", e.Err)
				continue
			}
			due = f.after(quiet)
			if latest == nil {
				latest = f.after(longest)
			}
			continue
		case <-due:
		case <-latest:
		}
		due, latest = nil, nil
		if !f.take(ctx) {
			due = f.after(retry)
		}
	}
}

// take makes a snapshot; false when the source cannot be read.
func (f *Facts) take(ctx context.Context) bool {
	c, err := f.source.Cluster(ctx)
	if err != nil {
		if ctx.Err() == nil {
			f.log.Warn("the picture of the cluster stays as it was", "error", err)
		}
		return false
	}
	c.Self = f.self
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.cluster == nil {
		close(f.synced)
	}
	f.cluster = &c
	for s := range f.subscribers {
		select {
		case s <- struct{}{}:
		default:
		}
	}
	return true
}
