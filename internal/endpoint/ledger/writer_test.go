// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"github.com/weft-net/weft/internal/endpoint/attach"
	"github.com/weft-net/weft/internal/model"
)

// Writes that wait for a transaction share the next one.
func TestOneTransactionForAllThatWait(t *testing.T) {
	l, err := Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	last := func() (id int) {
		_ = l.db.View(func(tx *bbolt.Tx) error { id = tx.ID(); return nil })
		return id
	}
	before := last()
	const n = 50
	l.out.sem <- struct{}{} // a transaction is in progress
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			key := model.Request{Network: "net", ContainerID: fmt.Sprint("c", i), IfName: "eth0"}
			if err := l.Put(attach.Record{Stage: attach.Pending, Request: key}); err != nil {
				t.Error(err)
			}
		})
	}
	waiting := func() int {
		l.out.mu.Lock()
		defer l.out.mu.Unlock()
		return len(l.out.queue)
	}
	for range 3000 {
		if waiting() == n {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	<-l.out.sem
	all.Wait()
	if made := last() - before; made != 1 {
		t.Errorf("%d transactions for %d calls", made, n)
	}
	if count, err := l.Len(); count != n || err != nil {
		t.Errorf("%d records, %v", count, err)
	}
}

// A write that panics gets an error, and those that came with it and after it are done.
func TestPanicInAWrite(t *testing.T) {
	l, err := Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	put := func(name string) func(*bbolt.Bucket) error {
		return func(bk *bbolt.Bucket) error {
			if name == "bad" {
				panic("a defect")
			}
			return bk.Put([]byte(name), []byte("{}"))
		}
	}
	names := []string{"before", "bad", "beside"}
	errs := make([]error, len(names))
	done := make(chan struct{})
	go func() {
		defer close(done)
		l.out.sem <- struct{}{} // until all wait: they are one transaction
		var all sync.WaitGroup
		for i, name := range names {
			all.Go(func() { errs[i] = l.write(put(name)) })
		}
		for waiting := 0; waiting < len(names); time.Sleep(time.Millisecond) {
			l.out.mu.Lock()
			waiting = len(l.out.queue)
			l.out.mu.Unlock()
		}
		<-l.out.sem
		all.Wait()
		errs = append(errs, l.write(put("after")))
	}()
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Fatal("writes wait for one that has panicked")
	}
	for i, err := range errs {
		if bad := i == 1; bad != errors.Is(err, errPanic) || !bad && err != nil {
			t.Errorf("write %d: %v", i, err)
		}
	}
	if !strings.Contains(errs[1].Error(), "a defect (in ") || !strings.Contains(errs[1].Error(), "TestPanicInAWrite") {
		t.Errorf("the error does not say where: %v", errs[1])
	}
	if n, err := l.Len(); n != 3 || err != nil {
		t.Errorf("%d records, %v; want 3", n, err)
	}
	if err := l.Health(); err != nil {
		t.Errorf("health after a panic: %v", err)
	}
}

// Health asks for a write that ends.
func TestHealthOfAStuckWriter(t *testing.T) {
	l, err := Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Health(); err != nil {
		t.Errorf("health of a new ledger: %v", err)
	}
	l.health.stale()        // the first answer does not serve for the second
	l.out.sem <- struct{}{} // a write that does not end
	var all sync.WaitGroup
	for range 3 {
		all.Go(func() {
			if err := l.Health(); !errors.Is(err, ErrStuck) {
				t.Errorf("health of a stuck writer: %v", err)
			}
		})
	}
	all.Wait()
	<-l.out.sem
	for end := time.Now().Add(time.Minute); l.Health() != nil; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("health stays %v", l.Health())
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	l.health.stale()
	if err := l.Health(); err == nil || errors.Is(err, ErrStuck) {
		t.Errorf("health of a file that cannot be written: %v", err)
	}
}
