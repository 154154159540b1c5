// SPDX-License-Identifier: Apache-2.0

// Package facts maintains a node's view of the cluster: immutable snapshots of the model, and notifications of new
// ones. The consumers (mesh, policy, attachments) plan from a snapshot and never query a store.
//
// Snapshots are computed from the source's watch only. Changes are coalesced: a snapshot is created when nothing has
// changed for 20 ms, and at the latest 50 ms after the first change. While the source is unavailable, the last snapshot
// stays.
package facts

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/notify"
)

const (
	quiet    = 20 * time.Millisecond
	maxDelay = 50 * time.Millisecond
	// retry is the time between two attempts to watch a source that is unavailable.
	retry = time.Second
)

// Source is where facts come from: a directory of manifests, an etcd or an API server.
type Source interface {
	// Watch sends all objects, then Synced, then every change until ctx ends, when it closes the channel.
	Watch(ctx context.Context) (<-chan store.Event, error)
}

// Clock returns a channel that fires after a duration; time.After is one.
type Clock func(time.Duration) <-chan time.Time

// Facts watches a source while Run runs.
type Facts struct {
	// OnNodeCount, which may be nil, is called when the number of nodes changes. It must be set before Run.
	OnNodeCount func(nodes int)

	source Source
	self   string
	log    *slog.Logger
	after  Clock
	synced chan struct{}

	mu          sync.Mutex
	cluster     *model.Cluster
	subscribers map[notify.Chan]bool
}

// New creates the facts of the node named self.
func New(source Source, self string, log *slog.Logger, clock Clock) *Facts {
	return &Facts{
		source: source, self: self, log: log.With("component", "facts"), after: clock,
		synced: make(chan struct{}), subscribers: map[notify.Chan]bool{},
	}
}

// Cluster returns the latest snapshot, nil before the first. It must not be modified.
func (f *Facts) Cluster() *model.Cluster {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.cluster
}

// Synced is closed once there is a snapshot.
func (f *Facts) Synced() <-chan struct{} { return f.synced }

// Subscribe returns a channel that holds a token while there is a new snapshot, and a function that ends the
// subscription.
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

// Run watches the source until ctx ends.
func (f *Facts) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	events := f.watch(ctx)
	if events == nil {
		return nil
	}
	objects := newObjects(f.self)
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
			case f.apply(objects, e) && synced:
				due = f.after(quiet)
				if latest == nil {
					latest = f.after(maxDelay)
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

// watch begins to watch the source, which may be unavailable: it existed when the agent opened it. It returns nil when ctx
// ends before.
func (f *Facts) watch(ctx context.Context) <-chan store.Event {
	for logged := false; ; logged = true {
		events, err := f.source.Watch(ctx)
		if err == nil {
			return events
		}
		if !logged {
			f.log.Error("the datastore cannot be watched; it is tried again", "err", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-f.after(retry):
		}
	}
}

// apply applies an event; it returns false if the objects are unchanged.
func (f *Facts) apply(objects *objects, e store.Event) bool {
	switch e.Type {
	case store.Added, store.Modified:
		objects.put(e.Object)
	case store.Deleted:
		objects.delete(e.Object.Key)
	case store.Faulty:
		f.log.Warn("object is invalid; its last valid version is used, if any", "err", e.Err)
		return false
	default:
		return false
	}
	return true
}

// publish makes a snapshot and notifies the subscribers.
func (f *Facts) publish(objects *objects) {
	c, problems := objects.cluster(f.Cluster())
	for _, err := range problems {
		f.log.Warn("object is invalid; ignoring it", "err", err)
	}
	c.Self = f.self
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.OnNodeCount != nil && (f.cluster == nil || len(f.cluster.Nodes) != len(c.Nodes)) {
		f.OnNodeCount(len(c.Nodes))
	}
	if f.cluster == nil {
		close(f.synced)
	}
	f.cluster = &c
	for s := range f.subscribers {
		s.Notify()
	}
}
