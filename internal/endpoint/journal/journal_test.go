// SPDX-License-Identifier: Apache-2.0

package journal_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/weft-net/weft/internal/endpoint/attach"
	"github.com/weft-net/weft/internal/endpoint/journal"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/nettest"
)

func TestMain(m *testing.M) { os.Exit(nettest.Main(m)) }

func record(network, id string, stage attach.Stage) attach.Record {
	return attach.Record{Stage: stage, Request: model.Request{Network: network, ContainerID: id, IfName: "eth0"}}
}

func open(t testing.TB, dir string) *journal.Journal {
	t.Helper()
	j, err := journal.Open(dir, "bridge")
	if err != nil {
		t.Fatal(err)
	}
	return j
}

// files lists everything below dir that is no directory.
func files(t testing.TB, dir string) []string {
	t.Helper()
	var out []string
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			out = append(out, strings.TrimPrefix(path, dir+"/"))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// Any sequence of calls leaves what a map would hold; a record that is not done is found among the unfinished.
func TestModel(t *testing.T) {
	long := strings.Repeat("x", 250)
	rapid.Check(t, func(t *rapid.T) {
		dir, err := os.MkdirTemp("", "journal")
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = os.RemoveAll(dir) }()
		j, err := journal.Open(dir, "bridge")
		if err != nil {
			t.Fatal(err)
		}
		want := map[model.AttachmentKey]attach.Record{}
		draw := func(t *rapid.T) attach.Record {
			return record(rapid.SampledFrom([]string{"n", "n-a", long}).Draw(t, "net"),
				rapid.SampledFrom([]string{"a", "a-a", long}).Draw(t, "id"),
				rapid.SampledFrom([]attach.Stage{attach.Pending, attach.Done, attach.Releasing}).Draw(t, "stage"))
		}
		t.Repeat(map[string]func(*rapid.T){
			"put": func(t *rapid.T) {
				r := draw(t)
				if err := j.Put(r); err != nil {
					t.Fatal(err)
				}
				r.Version = attach.RecordVersion
				want[r.Key()] = r
			},
			"delete": func(t *rapid.T) {
				k := draw(t).Key()
				if err := j.Delete(k); err != nil {
					t.Fatal(err)
				}
				delete(want, k)
			},
			"": func(t *rapid.T) {
				list, err := j.List()
				if err != nil {
					t.Fatal(err)
				}
				have := map[model.AttachmentKey]attach.Record{}
				for _, r := range list {
					have[r.Key()] = r
				}
				if d := cmp.Diff(want, have); d != "" {
					t.Fatal(d)
				}
				unfinished, err := j.Unfinished("n")
				if err != nil {
					t.Fatal(err)
				}
				n := 0
				for _, r := range want {
					if r.Request.Network == "n" && r.Stage != attach.Done {
						n++
					}
				}
				if len(unfinished) != n {
					t.Fatalf("%d unfinished, want %d", len(unfinished), n)
				}
			},
		})
	})
}

func TestNothingIsLeft(t *testing.T) {
	dir := t.TempDir()
	j := open(t, dir)
	r := record("n", "a", attach.Pending)
	release, err := j.Container(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	for _, stage := range []attach.Stage{attach.Pending, attach.Done, attach.Releasing} {
		r.Stage = stage
		if err := j.Put(r); err != nil {
			t.Fatal(err)
		}
	}
	if err := j.Delete(r.Key()); err != nil {
		t.Fatal(err)
	}
	// What a killed call was writing goes with the lock of the next one, or with GC.
	half := filepath.Join(dir, "locks/a.lock.tmp")
	if err := os.WriteFile(half, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	release()
	if left := files(t, dir); len(left) != 0 {
		t.Fatal(left)
	}
	if err := errors.Join(os.WriteFile(half, []byte("{"), 0o600), j.SweepLocks()); err != nil {
		t.Fatal(err)
	}
	if left := files(t, dir); len(left) != 0 {
		t.Fatal(left)
	}
}

// Programs before this one finished a record by writing "done" and spaces over "pending" in its file, after they had
// moved it. Their records are read, released and deleted, also one of a call that was killed between the two.
func TestRecordFinishedInPlace(t *testing.T) {
	text, err := os.ReadFile("../attach/testdata/finished-in-place.json")
	if err != nil {
		t.Fatal(err)
	}
	killed := strings.Replace(string(text), `"stage":"done"   ,`, `"stage":"pending",`, 1)
	if killed == string(text) {
		t.Fatal("the stored record is not of the form that this test is about")
	}
	for name, stored := range map[string]string{"finished": string(text), "killed before it said so": killed} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			j := open(t, dir)
			if err := os.WriteFile(filepath.Join(dir, "bridge/done/pods,c1,eth0.json"), []byte(stored), 0o600); err != nil {
				t.Fatal(err)
			}
			r, found, err := j.Get(model.AttachmentKey{Network: "pods", ContainerID: "c1", IfName: "eth0"})
			if err != nil || !found || r.Stage != attach.Done || len(r.Acts) != 2 || r.Result == nil ||
				r.Result.IPs[0].Address != netip.MustParsePrefix("10.77.0.2/16") {
				t.Fatalf("found %v, %v: %+v", found, err, r)
			}
			r.Stage = attach.Releasing
			if err := j.Put(r); err != nil {
				t.Fatal(err)
			}
			if left, err := j.Unfinished("pods"); err != nil || len(left) != 1 || left[0].Stage == attach.Done {
				t.Errorf("unfinished: %+v, %v", left, err)
			}
			if err := j.Delete(r.Key()); err != nil {
				t.Fatal(err)
			}
			if left := files(t, dir); len(left) != 0 {
				t.Error(left)
			}
		})
	}
}

func TestNewerVersionIsKept(t *testing.T) {
	dir := t.TempDir()
	j := open(t, dir)
	r := record("n", "a", attach.Done)
	path := filepath.Join(dir, "bridge/done/n,a,eth0.json")
	if err := os.WriteFile(path, []byte(`{"version":2}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := j.Get(r.Key()); !errors.Is(err, attach.ErrNewer) {
		t.Errorf("Get: %v", err)
	}
	if err := j.Put(r); !errors.Is(err, attach.ErrNewer) {
		t.Errorf("Put: %v", err)
	}
	if err := j.Delete(r.Key()); !errors.Is(err, attach.ErrNewer) {
		t.Errorf("Delete: %v", err)
	}
	if left := files(t, dir); !cmp.Equal(left, []string{"bridge/done/n,a,eth0.json"}) {
		t.Error(left)
	}
}

// A directory that cannot be written is refused with code 5 and a hint, also when it is full or read-only.
func TestUnusableDirectory(t *testing.T) {
	refused := func(what string, err error) {
		t.Helper()
		var f *model.Error
		if !errors.As(err, &f) || f.Code != model.CodeIO || !strings.Contains(f.Hint, "WEFT_JOURNAL_DIR") {
			t.Errorf("%s: %v", what, err)
		}
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := journal.Open(file, "bridge")
	refused("a file", err)

	dir := filepath.Join(t.TempDir(), "small")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	nettest.Run(t, nil, "mount", "-t", "tmpfs", "-o", "size=64k", "none", dir)
	t.Cleanup(func() { nettest.Run(t, nil, "umount", "-l", dir) })
	j := open(t, dir)
	old := record("n", "old", attach.Done)
	if err := j.Put(old); err != nil {
		t.Fatal(err)
	}
	_ = os.WriteFile(filepath.Join(dir, "filler"), make([]byte, 1<<20), 0o600) // as much as there is room for
	refused("full", j.Put(record("n", "a", attach.Pending)))
	if left := files(t, dir); !cmp.Equal(left, []string{"bridge/done/n,old,eth0.json", "filler"}) {
		t.Errorf("after a refused Put: %v", left)
	}
	old.Stage = attach.Releasing
	if err := errors.Join(j.Put(old), j.Delete(old.Key())); err != nil {
		t.Errorf("releasing on a full disk: %v", err)
	}
	nettest.Run(t, nil, "mount", "-o", "remount,bind,ro", dir)
	refused("read-only", j.Put(record("n", "a", attach.Pending)))
	_, err = j.Container(t.Context(), "a")
	refused("read-only lock", err)
}

// The lock of a container is held by one at a time, and its file does not outlive them.
func TestContainerLock(t *testing.T) {
	dir := t.TempDir()
	var wg sync.WaitGroup
	var inside atomic.Int32
	for range 8 {
		wg.Go(func() {
			j := open(t, dir)
			for range 20 {
				release, err := j.Container(t.Context(), "a")
				if err != nil {
					t.Error(err)
					return
				}
				if n := inside.Add(1); n != 1 {
					t.Errorf("%d inside", n)
				}
				inside.Add(-1)
				release()
			}
		})
	}
	wg.Wait()
	if left := files(t, dir); len(left) != 0 {
		t.Error(left)
	}
}

func TestGate(t *testing.T) {
	j := open(t, t.TempDir())
	first, err := j.RLock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	second, err := j.RLock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := j.TryLock(); ok {
		t.Error("alone beside two others")
	}
	short, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
	defer cancel()
	var f *model.Error
	if _, err := j.Lock(short); !errors.As(err, &f) || f.Code != model.CodeTryAgain {
		t.Errorf("alone beside two others: %v", err)
	}
	first()
	second()
	exclusive, err := j.Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := j.TryContainer("a"); !ok {
		t.Error("a container's lock is not the gate")
	}
	exclusive()
}

func TestTryContainerWhileHeld(t *testing.T) {
	j := open(t, t.TempDir())
	release, err := j.Container(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := j.TryContainer("a"); ok {
		t.Error("held twice")
	}
	release()
	again, ok := j.TryContainer("a")
	if !ok {
		t.Fatal("free and not given")
	}
	again()
}

// Lock succeeds however many shared locks follow each other.
func TestLockIsNotStarved(t *testing.T) {
	j := open(t, t.TempDir())
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			time.Sleep(time.Duration(i) * 3 * time.Millisecond) // so that there is always one inside
			for ctx.Err() == nil {
				release, err := j.RLock(ctx)
				if err != nil {
					return
				}
				time.Sleep(12 * time.Millisecond)
				release()
			}
		})
	}
	time.Sleep(50 * time.Millisecond)
	release, err := j.Lock(ctx)
	if err != nil {
		t.Error(err)
	} else {
		release()
	}
	cancel()
	wg.Wait()
}

func BenchmarkPut(b *testing.B) {
	j := open(b, b.TempDir())
	for i := range b.N {
		if err := j.Put(record("n", fmt.Sprint(i), attach.Pending)); err != nil {
			b.Fatal(err)
		}
	}
}
