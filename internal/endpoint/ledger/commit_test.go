// SPDX-License-Identifier: Apache-2.0

package ledger_test

import (
	"bufio"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"github.com/weft-net/weft/internal/endpoint/attach"
	"github.com/weft-net/weft/internal/endpoint/ledger"
	"github.com/weft-net/weft/internal/model"
)

// manyWriters is the value of the environment that has a process write from many goroutines.
const manyWriters = "WEFT_TEST_LEDGER_MANY"

// Concurrent writes each get their own error; a failed one does not fail the others.
func TestConcurrentWrites(t *testing.T) {
	dir := t.TempDir()
	l := open(t, dir)
	if err := errors.Join(l.Put(record(7, attach.Done)), l.Close()); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "ledger.db")
	db, err := bbolt.Open(path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	err = db.Update(func(tx *bbolt.Tx) error {
		return tx.Bucket([]byte("attachments")).Put([]byte("c7\x00net\x00eth0"), []byte(`{"version":2}`))
	})
	if err := errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
	first := transactions(t, path)
	l = open(t, dir)
	const n = 400
	errs := make([]error, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			errs[i] = l.Put(record(i, attach.Pending))
			if errs[i] == nil && i%2 == 0 {
				errs[i] = l.Put(record(i, attach.Done))
			}
			if errs[i] == nil && i%5 == 0 {
				errs[i] = l.Delete(record(i, "").Key())
			}
		})
	}
	all.Wait()
	for i, err := range errs {
		if i == 7 != errors.Is(err, attach.ErrNewer) || i != 7 && err != nil {
			t.Errorf("record %d: %v", i, err)
		}
		r, found, err := l.Get(record(i, "").Key())
		switch {
		case i == 7:
		case err != nil || found != (i%5 != 0):
			t.Errorf("record %d: found %v, error %v", i, found, err)
		case found && (r.Stage == attach.Done) != (i%2 == 0):
			t.Errorf("record %d is %s", i, r.Stage)
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	made := transactions(t, path) - first
	t.Logf("%d transactions for %d calls", made, n+n/2+n/5)
}

// transactions is the number of the file's last transaction.
func transactions(t *testing.T, path string) int {
	t.Helper()
	db, err := bbolt.Open(path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	tx, err := db.Begin(false)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	return tx.ID()
}

// writeMany writes from many goroutines until it is killed, and prints which writes succeeded.
func writeMany(dir string) {
	l, err := ledger.Open(dir)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return
	}
	var out sync.Mutex
	var all sync.WaitGroup
	for w := range 32 {
		all.Go(func() {
			for i := w; i < 1<<20; i += 32 {
				if err := l.Put(record(i, attach.Pending)); err != nil {
					fmt.Fprintln(os.Stderr, err)
					return
				}
				out.Lock()
				fmt.Println(i)
				out.Unlock()
			}
		})
	}
	all.Wait()
}

// What was answered to any of many writers is there after SIGKILL.
func TestManyKilledWriters(t *testing.T) {
	for round := range 5 {
		dir := t.TempDir()
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), manyWriters+"="+dir)
		cmd.Stderr = os.Stderr
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		var answered []int
		least := 200 + rand.IntN(2000)
		deadline := time.AfterFunc(2*time.Minute, func() { _ = cmd.Process.Kill() })
		for s := bufio.NewScanner(out); s.Scan(); {
			i, err := strconv.Atoi(s.Text())
			if err != nil {
				break
			}
			if answered = append(answered, i); len(answered) == least {
				_ = cmd.Process.Kill()
			}
		}
		deadline.Stop()
		_ = cmd.Wait()
		l, err := ledger.Open(dir)
		if err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		for _, i := range answered {
			if _, found, err := l.Get(record(i, "").Key()); !found || err != nil {
				t.Errorf("round %d: record %d was answered: found %v, error %v", round, i, found, err)
			}
		}
		if len(answered) < least {
			t.Errorf("round %d: %d answers, want %d", round, len(answered), least)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// Agents before this one finished a record by writing "done" and spaces over "pending" in its stored form. Their
// records are read, released and deleted.
func TestRecordFinishedInPlace(t *testing.T) {
	text, err := os.ReadFile("../attach/testdata/finished-in-place.json")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(text), `"stage":"done"   ,`) {
		t.Fatal("the stored record is not of the form that this test is about")
	}
	dir := t.TempDir()
	if err := open(t, dir).Close(); err != nil {
		t.Fatal(err)
	}
	db, err := bbolt.Open(filepath.Join(dir, "ledger.db"), 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	err = db.Update(func(tx *bbolt.Tx) error {
		return tx.Bucket([]byte("attachments")).Put([]byte("c1\x00pods\x00eth0"), text)
	})
	if err := errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
	l := open(t, dir)
	defer func() { _ = l.Close() }()
	if all, err := l.InNamespace(4026532247); err != nil || len(all) != 1 {
		t.Errorf("in its namespace: %d records, %v", len(all), err)
	}
	key := model.AttachmentKey{Network: "pods", ContainerID: "c1", IfName: "eth0"}
	r, found, err := l.Get(key)
	if err != nil || !found || r.Stage != attach.Done || len(r.Acts) != 2 || r.Result == nil {
		t.Fatalf("found %v, %v: %+v", found, err, r)
	}
	if err := l.SetStage(attach.Releasing, r); err != nil {
		t.Fatal(err)
	}
	if r, _, err := l.Get(key); err != nil || r.Stage != attach.Releasing {
		t.Errorf("released: %s, %v", r.Stage, err)
	}
	if err := l.Delete(key); err != nil {
		t.Fatal(err)
	}
	if all, err := l.List(); err != nil || len(all) != 0 {
		t.Errorf("deleted: %d records, %v", len(all), err)
	}
}
