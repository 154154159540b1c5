// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"

	"go.etcd.io/bbolt"
)

// writer makes one transaction of all that is to be written at a moment. Who comes while one is under way waits for the
// next, which takes everybody that waits; who comes alone does not wait. A call is answered when what it wrote is in
// the file.
type writer struct {
	db   *bbolt.DB
	turn chan struct{} // held by who commits

	mu    sync.Mutex
	queue []*write
}

// write is what one call writes. It changes nothing when it fails.
type write struct {
	bucket string
	do     func(bk *bbolt.Bucket) error
	err    error
	done   chan struct{}
}

func newWriter(db *bbolt.DB) *writer { return &writer{db: db, turn: make(chan struct{}, 1)} }

// write does what is to be written to a bucket, and tells how that went.
func (w *writer) write(bucket string, do func(bk *bbolt.Bucket) error) error {
	one := &write{bucket: bucket, do: do, done: make(chan struct{})}
	w.mu.Lock()
	w.queue = append(w.queue, one)
	w.mu.Unlock()
	select {
	case <-one.done:
		return one.err
	case w.turn <- struct{}{}:
	}
	defer func() { <-w.turn }() // also after a panic: the next one must not wait for ever
	w.mu.Lock()
	all := w.queue // without this one, when it was done meanwhile
	w.queue = nil
	w.mu.Unlock()
	w.commit(all)
	return one.err
}

// commit writes all in one transaction; where that fails, each in its own, so that each has its own error.
func (w *writer) commit(all []*write) {
	defer func() {
		for _, one := range all {
			close(one.done)
		}
	}()
	if len(all) > 0 && w.together(all) != nil && len(all) > 1 {
		for i := range all {
			_ = w.together(all[i : i+1])
		}
	}
}

// together is one transaction. One write that fails, or panics, undoes it for all.
func (w *writer) together(all []*write) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: %v (in %s)", errPanic, p, origin())
		}
		for _, one := range all {
			one.err = err
		}
	}()
	return w.db.Update(func(tx *bbolt.Tx) error {
		for _, one := range all {
			if err := one.do(tx.Bucket([]byte(one.bucket))); err != nil {
				return err
			}
		}
		return nil
	})
}

// errPanic is wrapped by the error of a write that panicked.
var errPanic = errors.New("panic")

// origin is the function that panicked. It is called by the deferred function that recovers.
func origin() string {
	pcs := make([]uintptr, 16)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(3, pcs)])
	for {
		f, more := frames.Next()
		if !strings.HasPrefix(f.Function, "runtime.") || !more {
			return fmt.Sprintf("%s, line %d", f.Function, f.Line)
		}
	}
}
