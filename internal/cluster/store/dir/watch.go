// SPDX-License-Identifier: Apache-2.0

package dir

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/notify"
)

const (
	// settle is how long a watch waits after the first change: editors write in several steps.
	settle = 10 * time.Millisecond
	// resync is the interval in which a watch compares its objects with the files.
	resync = 5 * time.Second
	// trust is how long after a look at all files the notifier is trusted: a change by a memory mapping, or a mount
	// onto a file, is not reported.
	trust = resync - time.Second
	// pollInterval is the interval if there is no inotify instance.
	pollInterval = 500 * time.Millisecond
)

// Watch sends all objects as Added, then Synced, and then every change, until ctx ends; then the channel is closed.
// Quick changes of one object are coalesced.
func (s *Store) Watch(ctx context.Context) (<-chan store.Event, error) {
	if _, err := s.Problems(); err != nil {
		return nil, err
	}
	w := &watch{
		store: s, out: make(chan store.Event), wake: notify.New(), changed: map[store.Key]bool{},
		seen: map[store.Key]store.Object{}, reported: map[string]bool{},
	}
	s.add(w)
	go w.run(ctx)
	return w.out, nil
}

// add adds a watch, which begins with all objects. While there are watches, the kernel says which files change.
func (s *Store) add(w *watch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.subscribeLocked(w)
	s.watches[w] = struct{}{}
	for key := range s.index.places {
		w.changed[key] = true
	}
}

// subscribeLocked notifies a watch of changes, if the kernel can.
func (s *Store) subscribeLocked(w *watch) {
	if s.notifier == nil {
		s.notifier = s.listen(s.path)
	}
	if s.notifier != nil {
		s.notifier.subscribe(w, w.wake)
		w.notified = true
	}
}

// Follow has the kernel report changes until ctx ends, for a process that reads often and does not watch: its reads do
// not look at all files.
func (s *Store) Follow(ctx context.Context) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := &watch{wake: notify.New()}
	s.subscribeLocked(w)
	context.AfterFunc(ctx, func() { s.remove(w) })
}

func (s *Store) remove(w *watch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.watches, w)
	if w.notified && s.notifier.unsubscribe(w) {
		s.notifier.close()
		s.notifier = nil
	}
}

type watch struct {
	store    *Store
	out      chan store.Event
	wake     notify.Chan
	notified bool // by the kernel; false: inotify is unavailable
	seen     map[store.Key]store.Object
	reported map[string]bool

	// changed are the objects that changed since the last sync; the store's lock guards it.
	changed map[store.Key]bool
}

func (w *watch) run(ctx context.Context) {
	defer close(w.out)
	defer w.store.remove(w)
	every := resync
	if !w.notified {
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
		case <-w.wake:
			due = pending(due)
		case <-tick.C:
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
	present, gone, problems, err := w.changes()
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
	for _, e := range present {
		old, had := w.seen[e.Key]
		kind := store.Added
		if had {
			kind = store.Modified
		}
		if had && old.Version == e.Version {
			continue
		}
		w.seen[e.Key] = e.Object
		if !w.send(ctx, store.Event{Type: kind, Object: e.Object}) {
			return false
		}
	}
	for _, key := range gone {
		o, had := w.seen[key]
		if !had {
			continue
		}
		delete(w.seen, key)
		if !w.send(ctx, store.Event{Type: store.Deleted, Object: o}) {
			return false
		}
	}
	return true
}

// changes returns the objects that changed since the last call, in the order of the files, and those that are gone.
// After an error the known objects stay in force.
func (w *watch) changes() (present []entry, gone []store.Key, problems []error, err error) {
	s := w.store
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.refreshLocked(); err != nil {
		return nil, nil, nil, err
	}
	for key := range w.changed {
		if e, ok := s.index.get(key); ok {
			present = append(present, e)
		} else {
			gone = append(gone, key)
		}
	}
	clear(w.changed)
	slices.SortFunc(present, entry.compare)
	slices.SortFunc(gone, func(a, b store.Key) int { return cmp.Compare(a.String(), b.String()) })
	return present, gone, s.problemsLocked(), nil
}

func (w *watch) send(ctx context.Context, e store.Event) bool {
	select {
	case w.out <- e:
		return true
	case <-ctx.Done():
		return false
	}
}
