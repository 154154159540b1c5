// SPDX-License-Identifier: Apache-2.0

package ledger_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.etcd.io/bbolt"
	"pgregory.net/rapid"

	"github.com/weft-net/weft/internal/endpoint/attach"
	"github.com/weft-net/weft/internal/endpoint/ledger"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/nettest"
)

const writer = "WEFT_TEST_LEDGER_WRITER"

func TestMain(m *testing.M) {
	if dir := os.Getenv(writer); dir != "" {
		write(dir)
		os.Exit(1)
	}
	if dir := os.Getenv(manyWriters); dir != "" {
		writeMany(dir)
		os.Exit(1)
	}
	os.Exit(nettest.Main(m))
}

func record(i int, stage attach.Stage) attach.Record {
	return attach.Record{
		Stage: stage, Boot: "boot", Serial: int64(i),
		Request: model.Request{Network: "net", ContainerID: fmt.Sprintf("c%d", i), IfName: "eth0"},
	}
}

func open(t testing.TB, dir string) *ledger.Ledger {
	t.Helper()
	l, err := ledger.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// Any sequence of Put, Delete and reopening leaves what a map would hold.
func TestModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		dir, err := os.MkdirTemp("", "ledger")
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = os.RemoveAll(dir) }()
		l, err := ledger.Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = l.Close() }()
		want := map[model.AttachmentKey]attach.Record{}
		t.Repeat(map[string]func(*rapid.T){
			"put": func(t *rapid.T) {
				r := record(rapid.IntRange(0, 5).Draw(t, "i"),
					rapid.SampledFrom([]attach.Stage{attach.Pending, attach.Done}).Draw(t, "stage"))
				if err := l.Put(r); err != nil {
					t.Fatal(err)
				}
				r.Version = attach.RecordVersion
				want[r.Key()] = r
			},
			"stage": func(t *rapid.T) {
				r, stored := want[record(rapid.IntRange(0, 5).Draw(t, "i"), "").Key()]
				if !stored {
					t.Skip("no record")
				}
				stage := rapid.SampledFrom([]attach.Stage{attach.Done, attach.Releasing}).Draw(t, "stage")
				if err := l.SetStage(stage, r); err != nil {
					t.Fatal(err)
				}
				r.Stage = stage
				want[r.Key()] = r
			},
			"delete": func(t *rapid.T) {
				k := record(rapid.IntRange(0, 5).Draw(t, "i"), attach.Done).Key()
				if err := l.Delete(k); err != nil {
					t.Fatal(err)
				}
				delete(want, k)
			},
			"reopen": func(t *rapid.T) {
				if err := l.Close(); err != nil {
					t.Fatal(err)
				}
				if l, err = ledger.Open(dir); err != nil {
					t.Fatal(err)
				}
			},
			"": func(t *rapid.T) {
				list, err := l.List()
				if err != nil {
					t.Fatal(err)
				}
				have := map[model.AttachmentKey]attach.Record{}
				for _, r := range list {
					have[r.Key()] = r
					if one, ok, err := l.Get(r.Key()); err != nil || !ok || !cmp.Equal(one, r) {
						t.Fatalf("Get %v: %v %v %v", r.Key(), one, ok, err)
					}
				}
				if d := cmp.Diff(want, have); d != "" {
					t.Fatal(d)
				}
			},
		})
	})
}

// Keys finds a container's attachments and no other's, even one whose id begins the same.
func TestKeys(t *testing.T) {
	l := open(t, t.TempDir())
	for _, id := range []string{"a", "ab", "b"} {
		for _, ifName := range []string{"eth0", "net1"} {
			r := attach.Record{Stage: attach.Done, Request: model.Request{Network: "n", ContainerID: id, IfName: ifName}}
			if err := l.Put(r); err != nil {
				t.Fatal(err)
			}
		}
	}
	have, err := l.Keys("a")
	want := []model.AttachmentKey{
		{Network: "n", ContainerID: "a", IfName: "eth0"}, {Network: "n", ContainerID: "a", IfName: "net1"},
	}
	if d := cmp.Diff(want, have); d != "" || err != nil {
		t.Fatal(d, err)
	}
}

// TestInNamespace: those of a namespace are found, and no others.
func TestInNamespace(t *testing.T) {
	l := open(t, t.TempDir())
	for i, id := range []uint64{7, 71, 7, 17} {
		r := attach.Record{
			Stage: attach.Done, NetnsID: id, Request: model.Request{
				Network: "n", ContainerID: fmt.Sprint("c", i), IfName: "eth0",
			},
		}
		r.Network.Name = `"netnsID":7,`
		if err := l.Put(r); err != nil {
			t.Fatal(err)
		}
	}
	var found []string
	records, err := l.InNamespace(7)
	for _, r := range records {
		found = append(found, r.Request.ContainerID)
	}
	if d := cmp.Diff([]string{"c0", "c2"}, found); d != "" || err != nil {
		t.Error(d, err)
	}
}

// A record of a newer program is refused by every verb and survives all of them.
func TestNewerVersionIsKept(t *testing.T) {
	dir := t.TempDir()
	l := open(t, dir)
	r := record(1, attach.Done)
	if err := errors.Join(l.Put(r), l.Put(record(2, attach.Done)), l.Close()); err != nil {
		t.Fatal(err)
	}
	k := []byte("c1\x00net\x00eth0")
	newer := []byte(`{"version":2,"stage":{"changed":true}}`)
	db, err := bbolt.Open(filepath.Join(dir, "ledger.db"), 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(db.Update(func(tx *bbolt.Tx) error { return tx.Bucket([]byte("attachments")).Put(k, newer) }),
		db.Close()); err != nil {
		t.Fatal(err)
	}
	l = open(t, dir)
	_, found, err := l.Get(r.Key())
	if !errors.Is(err, attach.ErrNewer) || found {
		t.Errorf("Get: %v %v", found, err)
	}
	if err := l.Put(r); !errors.Is(err, attach.ErrNewer) {
		t.Errorf("Put: %v", err)
	}
	if err := l.Delete(r.Key()); !errors.Is(err, attach.ErrNewer) {
		t.Errorf("Delete: %v", err)
	}
	list, err := l.List()
	if !errors.Is(err, attach.ErrNewer) || len(list) != 1 {
		t.Errorf("List: %d records, %v", len(list), err)
	}
}

func TestSecondOpenNamesTheDirectory(t *testing.T) {
	dir := t.TempDir()
	open(t, dir)
	_, err := ledger.Open(dir)
	var f *model.Error
	if !errors.As(err, &f) || f.Code != model.CodeIO || !strings.Contains(f.Msg, dir) || f.Hint == "" {
		t.Fatalf("%#v", err)
	}
}

func TestUnusableDirectory(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	garbage := t.TempDir()
	if err := errors.Join(os.WriteFile(file, nil, 0o600),
		os.WriteFile(filepath.Join(garbage, "ledger.db"), []byte(strings.Repeat("no ledger", 4096)), 0o600)); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{file, filepath.Join(file, "below"), garbage} {
		_, err := ledger.Open(dir)
		var f *model.Error
		if !errors.As(err, &f) || f.Code != model.CodeIO || !strings.Contains(f.Msg, dir) || f.Hint == "" {
			t.Errorf("%s: %v", dir, err)
		}
	}
}

// A file that a power loss has torn is refused, or read; it never takes the process down.
func TestTornFile(t *testing.T) {
	whole := t.TempDir()
	l := open(t, whole)
	for i := range 200 {
		if err := l.Put(record(i, attach.Done)); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	good, err := os.ReadFile(filepath.Join(whole, "ledger.db"))
	if err != nil {
		t.Fatal(err)
	}
	refused := 0
	for round := range 60 {
		torn := bytes.Clone(good)
		if round%3 == 0 {
			torn = torn[:rand.IntN(len(torn))]
		} else {
			from := rand.IntN(len(torn) / 4096)
			for i := from * 4096; i < min((from+1+rand.IntN(4))*4096, len(torn)); i++ {
				torn[i] = byte(rand.Int() * (round % 2))
			}
		}
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "ledger.db"), torn, 0o600); err != nil {
			t.Fatal(err)
		}
		l, err := ledger.Open(dir)
		if err == nil {
			_, _ = l.List()
			_ = l.Close()
			continue
		}
		var f *model.Error
		if !errors.As(err, &f) || f.Code != model.CodeIO || !strings.Contains(f.Msg, dir) || f.Hint == "" {
			t.Errorf("round %d: %v", round, err)
		}
		refused++
	}
	t.Logf("%d of 60 refused", refused)
	// After a boot it is put aside.
	dir := t.TempDir()
	if err := errors.Join(os.WriteFile(filepath.Join(dir, "ledger.db"), good[:len(good)/2], 0o600),
		os.WriteFile(filepath.Join(dir, "boot"), []byte("an earlier one"), 0o600)); err != nil {
		t.Fatal(err)
	}
	if list, err := open(t, dir).List(); err != nil || len(list) != 0 {
		t.Errorf("a new ledger: %d records, %v", len(list), err)
	}
	if _, err := os.Stat(filepath.Join(dir, "ledger.db.torn")); err != nil {
		t.Error(err)
	}
}

// A full disk refuses a Put with code 5 and leaves what was there; deleting still works.
func TestFullDisk(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "small")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	nettest.Run(t, nil, "mount", "-t", "tmpfs", "-o", "size=256k", "none", dir)
	t.Cleanup(func() { nettest.Run(t, nil, "umount", "-l", dir) })
	l := open(t, dir)
	if err := l.Put(record(0, attach.Done)); err != nil {
		t.Fatal(err)
	}
	filler := filepath.Join(dir, "filler")
	_ = os.WriteFile(filler, make([]byte, 1<<20), 0o600) // as much as there is room for
	var err error
	for i := 1; i < 1000 && err == nil; i++ {
		err = l.Put(record(i, attach.Pending))
	}
	var f *model.Error
	if !errors.As(err, &f) || f.Code != model.CodeIO || !strings.Contains(f.Msg, dir) {
		t.Fatalf("Put on a full disk: %v", err)
	}
	if _, ok, err := l.Get(record(0, "").Key()); !ok || err != nil {
		t.Errorf("record from before: %v %v", ok, err)
	}
	// The reserve suffices to mark records as releasing, also several at once.
	if err := l.SetStage(attach.Releasing, record(0, attach.Done), record(1, attach.Pending), record(2, attach.Pending)); err != nil {
		t.Errorf("releasing on a full disk: %v", err)
	}
	if err := errors.Join(os.Remove(filler), l.Delete(record(0, "").Key())); err != nil {
		t.Error(err)
	}
}

// write puts records until it is killed and says each one that is written.
func write(dir string) {
	l, err := ledger.Open(dir)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return
	}
	for i := 0; ; i++ {
		r := record(i%40, attach.Pending)
		r.Serial = int64(i)
		if err := l.Put(r); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return
		}
		fmt.Println(i)
	}
}

// What Put has answered is there after SIGKILL, and the file opens.
func TestKilledWriter(t *testing.T) {
	rounds := 20
	if testing.Short() {
		rounds = 5
	}
	dir := t.TempDir()
	for round := range rounds {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), writer+"="+dir)
		cmd.Stderr = os.Stderr
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(time.Duration(20+rand.IntN(40))*time.Millisecond, func() { _ = cmd.Process.Kill() })
		last := -1
		for s := bufio.NewScanner(out); s.Scan(); {
			if json.Unmarshal(s.Bytes(), &last) != nil {
				break
			}
		}
		_ = cmd.Wait()
		l, err := ledger.Open(dir)
		if err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		if r, ok, err := l.Get(record(last%40, "").Key()); last >= 0 && (err != nil || !ok || r.Serial < int64(last)) {
			t.Fatalf("round %d: record %d: %v %v %v", round, last, r.Serial, ok, err)
		}
		if _, err := l.List(); err != nil {
			t.Fatal(err)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestVMs: the records of VMs and those of attachments are separate.
func TestVMs(t *testing.T) {
	dir := t.TempDir()
	l := open(t, dir)
	attachment, vm := record(1, attach.Done), attach.Record{
		Stage: attach.Pending, Boot: "boot", VM: &attach.VM{Key: "shop/vm1", Pod: "c1"},
		Request: model.Request{Network: "shop/vm1", ContainerID: "c1", IfName: "vm"},
	}
	if err := errors.Join(l.Put(attachment), l.VMs().Put(vm), l.Close()); err != nil {
		t.Fatal(err)
	}
	l = open(t, dir)
	for _, kind := range []struct {
		have *ledger.Records
		want attach.Record
	}{{&l.Records, attachment}, {l.VMs(), vm}} {
		kind.want.Version = attach.RecordVersion
		all, err := kind.have.List()
		if d := cmp.Diff([]attach.Record{kind.want}, all); d != "" || err != nil {
			t.Errorf("(-want +have):\n%s%v", d, err)
		}
	}
	if keys, err := l.Keys("c1"); len(keys) != 1 || err != nil {
		t.Errorf("attachments of the container: %v (%v)", keys, err)
	}
	if err := l.Delete(vm.Key()); err != nil {
		t.Error(err)
	}
	if _, found, err := l.VMs().Get(vm.Key()); !found || err != nil {
		t.Errorf("found: %t (%v)", found, err)
	}
}
