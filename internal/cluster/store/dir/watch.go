// SPDX-License-Identifier: Apache-2.0

package dir

import (
	"context"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"
	"github.com/weft-net/weft/internal/cluster/store"
)

const (
	// settle is how long a watch waits after the first change: editors write in several steps.
	settle = 10 * time.Millisecond
	// resync is the interval of full comparisons: a change may be missed if the directory was replaced, the kernel's queue
	// overflowed, or the files are on a network file system.
	resync = 5 * time.Second
	// pollInterval is the interval if there is no inotify instance.
	pollInterval = 500 * time.Millisecond
)

// Watch sends all objects as Added, then Synced, and then every change, until ctx ends; then the channel is closed.
// Quick changes of one object are coalesced.
func (s *Store) Watch(ctx context.Context) (<-chan store.Event, error) {
	if _, err := s.Problems(); err != nil {
		return nil, err
	}
	w := &watch{store: s, out: make(chan store.Event), seen: map[store.Key]store.Object{}, reported: map[string]bool{}}
	notify, err := fsnotify.NewWatcher()
	if err == nil {
		w.notify = notify
		_ = notify.Add(s.path)
	}
	go w.run(ctx)
	return w.out, nil
}

type watch struct {
	store    *Store
	out      chan store.Event
	notify   *fsnotify.Watcher // nil: inotify is unavailable
	seen     map[store.Key]store.Object
	reported map[string]bool
}

func (w *watch) run(ctx context.Context) {
	defer close(w.out)
	every := resync
	var changes chan fsnotify.Event
	var errs chan error
	if w.notify != nil {
		defer func() { _ = w.notify.Close() }()
		changes, errs = w.notify.Events, w.notify.Errors
	} else {
		every = pollInterval
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	var due <-chan time.Time
	if !w.sync(ctx) || !w.send(ctx, store.Event{Type: store.Synced}) {
		return
	}
	for {
		select {
		case <-ctx.Done():
			return
		case e := <-changes:
			if isManifest(filepath.Base(e.Name)) || filepath.Clean(e.Name) == filepath.Clean(w.store.path) {
				due = pending(due)
			}
		case <-errs: // the queue overflowed
			due = pending(due)
		case <-tick.C:
			if w.notify != nil {
				_ = w.notify.Add(w.store.path) // the directory may have been replaced
			}
			due = pending(due)
		case <-due:
			due = nil
			if !w.sync(ctx) {
				return
			}
		}
	}
}

func pending(due <-chan time.Time) <-chan time.Time {
	if due != nil {
		return due
	}
	return time.After(settle)
}

// sync sends the changes since the last call; false if ctx has ended.
func (w *watch) sync(ctx context.Context) bool {
	objects, problems, err := w.store.snapshot()
	if err != nil {
		problems = append(problems, err)
	}
	current := map[string]bool{}
	for _, p := range problems {
		current[p.Error()] = true
		if !w.reported[p.Error()] && !w.send(ctx, store.Event{Type: store.Faulty, Err: p}) {
			return false
		}
	}
	w.reported = current
	if err != nil {
		return true // the known objects stay in force
	}
	now := make(map[store.Key]bool, len(objects))
	for _, o := range objects {
		now[o.Key] = true
		old, had := w.seen[o.Key]
		kind := store.Added
		if had {
			kind = store.Modified
		}
		if had && old.Version == o.Version {
			continue
		}
		w.seen[o.Key] = o
		if !w.send(ctx, store.Event{Type: kind, Object: o}) {
			return false
		}
	}
	for key, o := range w.seen {
		if now[key] {
			continue
		}
		delete(w.seen, key)
		if !w.send(ctx, store.Event{Type: store.Deleted, Object: o}) {
			return false
		}
	}
	return true
}

func (w *watch) send(ctx context.Context, e store.Event) bool {
	select {
	case w.out <- e:
		return true
	case <-ctx.Done():
		return false
	}
}
