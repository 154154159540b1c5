// SPDX-License-Identifier: Apache-2.0

package cniserver

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weft-net/weft/internal/cni/wire"
	"github.com/weft-net/weft/internal/endpoint/attach"
	"github.com/weft-net/weft/internal/nettest"
)

// enqueue writes an entry as weft-cni does.
func enqueue(t *testing.T, socket string, at int64, frame []byte) string {
	t.Helper()
	dir := wire.QueueDir(socket)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	name := wire.QueueName(at, 1)
	temp := filepath.Join(dir, wire.TempPrefix+name)
	if err := errors.Join(os.WriteFile(temp, frame, 0o600), os.Rename(temp, filepath.Join(dir, name))); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, name)
}

// entries returns the names in the queue once it has as many as wanted.
func entries(t *testing.T, socket string, want int) []string {
	t.Helper()
	var names []string
	for end := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		files, err := os.ReadDir(wire.QueueDir(socket))
		if err != nil {
			t.Fatal(err)
		}
		names = nil
		for _, f := range files {
			names = append(names, f.Name())
		}
		if len(names) == want || time.Now().After(end) {
			return names
		}
	}
}

func delFrame(id string) []byte { return frameOf(oneNetwork, false, vars("DEL", id)...) }

func TestQueueIsDoneAtStart(t *testing.T) {
	rec := &recorder{}
	socket := filepath.Join(t.TempDir(), "agent.sock")
	enqueue(t, socket, 2, delFrame("second"))
	enqueue(t, socket, 1, delFrame("first"))
	defer serveAt(t, rec, socket)()
	if names := entries(t, socket, 0); len(names) != 0 {
		t.Errorf("left in the queue: %q", names)
	}
	if diff := cmp.Diff([]string{"DEL net eth0", "DEL net eth0"}, rec.seen()); diff != "" {
		t.Error(diff)
	}
}

func TestQueueIsWatched(t *testing.T) {
	rec := &recorder{}
	socket := serve(t, rec)
	enqueue(t, socket, 1, delFrame("late"))
	if names := entries(t, socket, 0); len(names) != 0 || !slices.Equal(rec.seen(), []string{"DEL net eth0"}) {
		t.Errorf("left in the queue: %q", names)
	}
}

func TestUnreadableEntriesArePutAside(t *testing.T) {
	rec := &recorder{}
	socket := filepath.Join(t.TempDir(), "agent.sock")
	enqueue(t, socket, 1, []byte("no frame"))
	enqueue(t, socket, 2, frameOf(oneNetwork, false, vars("ADD", "c")...))
	enqueue(t, socket, 3, delFrame("../c"))
	good := enqueue(t, socket, 4, delFrame("good"))
	young := filepath.Join(wire.QueueDir(socket), wire.TempPrefix+"young")
	old := filepath.Join(wire.QueueDir(socket), wire.TempPrefix+"old")
	past := time.Now().Add(-2 * stale)
	if err := errors.Join(os.WriteFile(young, nil, 0o600), os.WriteFile(old, nil, 0o600),
		os.Chtimes(old, past, past)); err != nil {
		t.Fatal(err)
	}
	defer serveAt(t, rec, socket)()
	want := []string{
		wire.TempPrefix + "young", wire.QueueName(1, 1) + wire.BadSuffix, wire.QueueName(2, 1) + wire.BadSuffix,
		wire.QueueName(3, 1) + wire.BadSuffix,
	}
	if diff := cmp.Diff(want, entries(t, socket, len(want))); diff != "" {
		t.Errorf("queue: %s", diff)
	}
	if _, err := os.Stat(good); !errors.Is(err, os.ErrNotExist) || len(rec.seen()) != 1 {
		t.Errorf("the good entry was not done: %v", err)
	}
}

func TestFailedEntryStays(t *testing.T) {
	fail := true
	rec := &recorder{do: func(_ context.Context, verb string, _ attach.Job) error {
		if fail && verb == "DEL" {
			return errors.New("not now")
		}
		return nil
	}}
	socket := filepath.Join(t.TempDir(), "agent.sock")
	enqueue(t, socket, 1, delFrame("c"))
	stop := serveAt(t, rec, socket)
	if names := entries(t, socket, 1); len(names) != 1 {
		t.Errorf("queue: %q", names)
	}
	stop()
	fail = false
	defer serveAt(t, rec, socket)()
	if names := entries(t, socket, 0); len(names) != 0 {
		t.Errorf("after a restart: %q", names)
	}
}

func TestAddIsNotOvertaken(t *testing.T) {
	rec := &recorder{}
	socket, ns := serve(t, rec), nettest.NS(t, "c")
	for i := range 50 {
		enqueue(t, socket, int64(i), delFrame("c"))
		ask(t, socket, oneNetwork, ns, vars("ADD", "c")...)
		entries(t, socket, 0)
		if calls := rec.seen(); !slices.Equal(calls, []string{"DEL net eth0", "ADD net eth0"}) {
			t.Fatalf("round %d: %q", i, calls)
		}
	}
}

// TestAddWaitsForItsPlaceInTheQueue: an ADD waits for the queued DEL of its container also while a DEL before that one
// takes long, and the directory has not changed since the replay began.
func TestAddWaitsForItsPlaceInTheQueue(t *testing.T) {
	hang, hanging := make(chan struct{}), make(chan struct{})
	var once sync.Once
	rec := &recorder{do: func(_ context.Context, verb string, _ attach.Job) error {
		once.Do(func() { close(hanging); <-hang })
		return nil
	}}
	socket, ns := filepath.Join(t.TempDir(), "agent.sock"), nettest.NS(t, "c")
	enqueue(t, socket, 1, delFrame("stuck"))
	enqueue(t, socket, 2, delFrame("c"))
	time.Sleep(2 * coarse) // from now on an unchanged modification time means no new entry
	defer serveAt(t, rec, socket)()
	<-hanging
	added := make(chan answer, 1)
	go func() { added <- ask(t, socket, oneNetwork, ns, vars("ADD", "c")...) }()
	select {
	case a := <-added:
		t.Errorf("ADD while its DEL is queued: %+v", a)
		close(hang)
	case <-time.After(200 * time.Millisecond):
		close(hang)
		if a := <-added; a.exit != 0 {
			t.Errorf("ADD: %+v", a)
		}
	}
	entries(t, socket, 0)
	if diff := cmp.Diff([]string{"DEL net eth0", "DEL net eth0", "ADD net eth0"}, rec.seen()); diff != "" {
		t.Error(diff)
	}
}

func TestOthersDoNotWaitForTheQueue(t *testing.T) {
	hang, hanging := make(chan struct{}), make(chan struct{})
	rec := &recorder{do: func(_ context.Context, verb string, _ attach.Job) error {
		if verb == "DEL" {
			close(hanging)
			<-hang
		}
		return nil
	}}
	socket, ns := serve(t, rec), nettest.NS(t, "c")
	enqueue(t, socket, 1, delFrame("stuck"))
	<-hanging
	if a := ask(t, socket, oneNetwork, ns, vars("ADD", "other")...); a.exit != 0 {
		t.Errorf("got %+v", a)
	}
	close(hang)
	entries(t, socket, 0)
}
