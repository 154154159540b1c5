// SPDX-License-Identifier: Apache-2.0

package netns_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/inotify"
	"github.com/weft-net/weft/internal/netns"
)

// deletions are a Deletions that runs until the test ends. Time for its own checks is what the test sends to check.
func deletions(t *testing.T) (d *netns.Deletions, check chan time.Time) {
	t.Helper()
	check = make(chan time.Time)
	events, err := inotify.New()
	if err != nil {
		t.Fatal(err)
	}
	d = netns.NewDeletions(events, func(time.Duration) <-chan time.Time { return check })
	ctx, cancel := context.WithCancel(t.Context())
	var run sync.WaitGroup
	for _, part := range []func(context.Context) error{events.Run, d.Run} {
		run.Go(func() {
			if err := part(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	t.Cleanup(func() { cancel(); run.Wait() })
	return d, check
}

// add makes a namespace at path, which is added, and returns what is closed when it is gone.
func add(t *testing.T, d *netns.Deletions, path string) (gone chan struct{}, remove func()) {
	t.Helper()
	ns, err := netns.New(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = errors.Join(ns.Close(), netns.Remove(path)) })
	id, err := ns.ID()
	if err != nil {
		t.Fatal(err)
	}
	gone = make(chan struct{})
	return gone, d.Add(path, id, func() { close(gone) })
}

func reported(t *testing.T, what string, gone <-chan struct{}) {
	t.Helper()
	select {
	case <-gone:
	case <-time.After(30 * time.Second):
		t.Fatalf("not reported: %s", what)
	}
}

func deleteNS(t *testing.T, path string) {
	t.Helper()
	if err := netns.Remove(path); err != nil {
		t.Fatal(err)
	}
}

// A namespace that is deleted is reported without a check, once, and by whatever path its directory is known; others
// are not, and neither is one that was removed.
func TestDeletions(t *testing.T) {
	d, _ := deletions(t)
	dir, other := t.TempDir(), filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(dir, other); err != nil {
		t.Fatal(err)
	}
	first, _ := add(t, d, filepath.Join(dir, "first"))
	second, _ := add(t, d, filepath.Join(other, "second"))
	unwanted, remove := add(t, d, filepath.Join(dir, "unwanted"))
	nested, _ := add(t, d, filepath.Join(dir, "sandbox", "netns"))
	last, removeLast := add(t, d, filepath.Join(dir, "last"))
	remove()
	remove()
	for _, name := range []string{"unwanted", "first"} {
		deleteNS(t, filepath.Join(dir, name))
	}
	reported(t, "first", first)
	deleteNS(t, filepath.Join(dir, "second"))
	reported(t, "second", second)
	deleteNS(t, filepath.Join(dir, "sandbox", "netns"))
	reported(t, "nested", nested)
	if err := os.Remove(filepath.Join(dir, "sandbox")); err != nil {
		t.Fatal(err)
	}
	again, _ := add(t, d, filepath.Join(dir, "sandbox", "netns"))
	deleteNS(t, filepath.Join(dir, "sandbox", "netns"))
	reported(t, "one in a directory that was made again", again)
	select {
	case <-unwanted:
		t.Error("reported after it was removed")
	case <-last:
		t.Error("reported, and is there")
	default:
	}
	removeLast() // the directory is not watched any more
	after, _ := add(t, d, filepath.Join(dir, "after"))
	deleteNS(t, filepath.Join(dir, "after"))
	reported(t, "one after its directory was not watched", after)
}

// A namespace that was deleted before it was added is reported, too.
func TestDeletedBefore(t *testing.T) {
	d, _ := deletions(t)
	gone := make(chan struct{})
	d.Add(filepath.Join(t.TempDir(), "ns"), 1, func() { close(gone) })
	reported(t, "a path without a namespace", gone)
}

// What inotify does not report is found by the check.
func TestDeletionsByCheck(t *testing.T) {
	d, check := deletions(t)
	path := filepath.Join(t.TempDir(), "ns")
	gone, _ := add(t, d, path)
	check <- time.Now()
	check <- time.Now() // the first one is over
	select {
	case <-gone:
		t.Error("reported, and is there")
	default:
	}
	if err := unix.Unmount(path, unix.MNT_DETACH); err != nil { // and is not deleted
		t.Fatal(err)
	}
	select {
	case check <- time.Now():
	case <-gone: // by the second one
	}
	reported(t, "a path that was unmounted only", gone)
}
