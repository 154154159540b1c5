// SPDX-License-Identifier: Apache-2.0

package netns

import (
	"context"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/inotify"
)

// DeletionCheck is how often Deletions checks what inotify does not report.
const DeletionCheck = 10 * time.Second

// Deletions reports that namespaces were deleted, to users that have them open: while one is open, the kernel keeps it,
// its links and their addresses.
//
// A runtime deletes a namespace by its path, which inotify reports at once. What it does not report is found within
// DeletionCheck: the end of a process (/proc/PID/ns/net), a path that was unmounted only, and anything where inotify is
// not available. Without namespaces Deletions does nothing.
type Deletions struct {
	after  func(time.Duration) <-chan time.Time
	events *inotify.Instance // nil if it is not available
	wake   chan struct{}

	mu      sync.Mutex
	watched map[*watched]struct{}
	due     map[*watched]struct{} // those to be checked
}

// watched is a namespace that a user has open.
type watched struct {
	path string
	id   uint64
	gone func()
	// unwatch ends the watch of the path's directory.
	unwatch func()
}

// NewDeletions makes a Deletions; Run must be called. after is time.After, except in tests.
func NewDeletions(events *inotify.Instance, after func(time.Duration) <-chan time.Time) *Deletions {
	return &Deletions{
		after: after, events: events, wake: make(chan struct{}, 1), watched: map[*watched]struct{}{},
		due: map[*watched]struct{}{},
	}
}

// Add calls gone once, from a goroutine of its own, when the namespace of that ID is no longer at path. remove ends that;
// gone may be running then. A nil Deletions reports nothing.
func (d *Deletions) Add(path string, id uint64, gone func()) (remove func()) {
	if d == nil {
		return func() {}
	}
	w := &watched{path: path, id: id, gone: gone}
	base := filepath.Base(path)
	// Where the directory cannot be watched, the periodic check finds the deletion.
	w.unwatch, _ = d.events.Watch(filepath.Dir(path), unix.IN_DELETE|unix.IN_MOVED_FROM, func(name string) {
		if name == "" || name == base { // the directory itself, or the path
			d.check(w)
		}
	})
	d.mu.Lock()
	d.watched[w] = struct{}{}
	d.due[w] = struct{}{} // it may have been deleted before it was watched
	d.mu.Unlock()
	d.notify()
	return func() { d.remove(w) }
}

// Run reports deletions until ctx ends, and waits until what it has called has returned.
func (d *Deletions) Run(ctx context.Context) error {
	var group sync.WaitGroup
	defer group.Wait()
	var check <-chan time.Time
	for {
		if check == nil && d.any() {
			check = d.after(DeletionCheck)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-d.wake:
		case <-check:
			check = nil
			d.checkAll()
		}
		for _, w := range d.take() {
			if Gone(w.path, w.id) && d.remove(w) {
				group.Go(w.gone)
			}
		}
	}
}

// remove forgets a namespace, and reports whether it was watched until now.
func (d *Deletions) remove(w *watched) bool {
	d.mu.Lock()
	_, is := d.watched[w]
	delete(d.watched, w)
	delete(d.due, w)
	d.mu.Unlock()
	if is {
		w.unwatch()
	}
	return is
}

// check has a namespace checked.
func (d *Deletions) check(w *watched) {
	d.mu.Lock()
	if _, is := d.watched[w]; is {
		d.due[w] = struct{}{}
	}
	d.mu.Unlock()
	d.notify()
}

// checkAll has all namespaces checked.
func (d *Deletions) checkAll() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for w := range d.watched {
		d.due[w] = struct{}{}
	}
}

// take returns the namespaces that are to be checked.
func (d *Deletions) take() []*watched {
	d.mu.Lock()
	defer d.mu.Unlock()
	all := make([]*watched, 0, len(d.due))
	for w := range d.due {
		all = append(all, w)
	}
	clear(d.due)
	return all
}

func (d *Deletions) any() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.watched) > 0
}

func (d *Deletions) notify() {
	select {
	case d.wake <- struct{}{}:
	default:
	}
}
