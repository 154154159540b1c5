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

// writer batches concurrent writes into one transaction. Writes that arrive during a transaction wait for the next one,
// which includes all of them; a single write does not wait. A write returns once it is in the file.
type writer struct {
	db  *bbolt.DB
	sem chan struct{} // held by the goroutine that commits

	mu    sync.Mutex
	queue []*write
}

// write is one queued write. It changes nothing if it fails.
type write struct {
	bucket string
	do     func(bk *bbolt.Bucket) error
	err    error
	done   chan struct{}
}

func newWriter(db *bbolt.DB) *writer { return &writer{db: db, sem: make(chan struct{}, 1)} }

// write performs a write to a bucket and returns its error.
func (w *writer) write(bucket string, do func(bk *bbolt.Bucket) error) error {
	one := &write{bucket: bucket, do: do, done: make(chan struct{})}
	w.mu.Lock()
	w.queue = append(w.queue, one)
	w.mu.Unlock()
	select {
	case <-one.done:
		return one.err
	case w.sem <- struct{}{}:
	}
	defer func() { <-w.sem }() // also after a panic, so that the next one does not block
	w.mu.Lock()
	all := w.queue // without this one if it was committed meanwhile
	w.queue = nil
	w.mu.Unlock()
	w.commit(all)
	return one.err
}

// commit writes all in one transaction; if that fails, each in its own, so that each has its own error.
func (w *writer) commit(all []*write) {
	defer func() {
		for _, one := range all {
			close(one.done)
		}
	}()
	if len(all) > 0 && w.transact(all) != nil && len(all) > 1 {
		for i := range all {
			_ = w.transact(all[i : i+1])
		}
	}
}

// transact runs one transaction. One write that fails or panics rolls it back for all.
func (w *writer) transact(all []*write) (err error) {
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

// origin returns the function that panicked. It must be called by the deferred function that recovers.
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
