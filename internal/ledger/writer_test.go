// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"github.com/weft-net/weft/internal/attach"
	"github.com/weft-net/weft/internal/model"
)

// Who waits while somebody writes is written in one transaction.
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
	l.out.turn <- struct{}{} // somebody writes
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
	<-l.out.turn
	all.Wait()
	if made := last() - before; made != 1 {
		t.Errorf("%d transactions for %d calls", made, n)
	}
	if count, err := l.Len(); count != n || err != nil {
		t.Errorf("%d records, %v", count, err)
	}
}
