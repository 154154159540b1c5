// SPDX-License-Identifier: Apache-2.0

// Package facts is a node's picture of the cluster: immutable snapshots in the model's terms, and word that there is a
// new one. Everybody below (mesh, policy, attachments) plans from a snapshot and never asks a store.
//
// The picture is made of the source's events alone, so it cannot be ahead of them. Changes are coalesced: a snapshot is
// made when nothing has changed for 20 ms, and at the latest 50 ms after the first change. While the source cannot be
// read, the last snapshot stays.
package facts

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/notify"
)

const (
	quiet   = 20 * time.Millisecond
	longest = 50 * time.Millisecond
)

// Source is where facts come from: a directory of manifests, later an API server.
type Source interface {
	// Watch tells what is there, then that this was all, and then every change until ctx ends, when it closes the channel.
	Watch(ctx context.Context) (<-chan store.Event, error)
}

// Clock gives a channel that fires after a while; time.After is one.
type Clock func(time.Duration) <-chan time.Time

// Facts follows a source. Run does the work.
type Facts struct {
	// Sized, which may be nil, is told how many nodes the cluster has when that is another number. It is set before Run.
	Sized func(nodes int)

	source Source
	self   string
	log    *slog.Logger
	after  Clock
	synced chan struct{}

	mu          sync.Mutex
	cluster     *model.Cluster
	subscribers map[notify.Chan]bool
}

// New makes the facts of the node called self.
func New(source Source, self string, log *slog.Logger, clock Clock) *Facts {
	return &Facts{
		source: source, self: self, log: log.With("room", "facts"), after: clock,
		synced: make(chan struct{}), subscribers: map[notify.Chan]bool{},
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
	c := notify.New()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.subscribers[c] = true
	if f.cluster != nil {
		c.Notify()
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
	objects := map[store.Key]store.Object{}
	synced := false
	var due, latest <-chan time.Time
	for {
		select {
		case e, ok := <-events:
			if !ok {
				return nil
			}
			first := e.Type == store.Synced && !synced
			synced = synced || first
			switch {
			case first:
				f.publish(objects)
			case f.take(objects, e) && synced:
				due = f.after(quiet)
				if latest == nil {
					latest = f.after(longest)
				}
			}
			continue
		case <-due:
		case <-latest:
		}
		due, latest = nil, nil
		f.publish(objects)
	}
}

// take notes an event; false when the picture is as before.
func (f *Facts) take(objects map[store.Key]store.Object, e store.Event) bool {
	switch e.Type {
	case store.Added, store.Modified:
		objects[e.Object.Key] = e.Object
	case store.Deleted:
		delete(objects, e.Object.Key)
	case store.Faulty:
		f.log.Warn("left out, or kept as it was before", "error", e.Err)
		return false
	default:
		return false
	}
	return true
}

// publish makes a snapshot and tells the subscribers.
func (f *Facts) publish(objects map[store.Key]store.Object) {
	all := make([]store.Object, 0, len(objects))
	for _, o := range objects {
		all = append(all, o)
	}
	c, problems := store.Cluster(all)
	for _, err := range problems {
		f.log.Warn("left out", "error", err)
	}
	c.Self = f.self
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.Sized != nil && (f.cluster == nil || len(f.cluster.Nodes) != len(c.Nodes)) {
		f.Sized(len(c.Nodes))
	}
	if f.cluster == nil {
		close(f.synced)
	}
	f.cluster = &c
	for s := range f.subscribers {
		s.Notify()
	}
}
