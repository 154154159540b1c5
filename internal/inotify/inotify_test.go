// SPDX-License-Identifier: Apache-2.0

package inotify_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/inotify"
)

// start runs an instance until the test ends.
func start(t *testing.T) *inotify.Instance {
	t.Helper()
	i, err := inotify.New()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var run sync.WaitGroup
	run.Go(func() {
		if err := i.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() { cancel(); run.Wait() })
	return i
}

func watch(t *testing.T, i *inotify.Instance, dir string, mask uint32) (names chan string, remove func()) {
	t.Helper()
	names = make(chan string, 100)
	remove, err := i.Watch(dir, mask, func(name string) { names <- name })
	if err != nil {
		t.Fatal(err)
	}
	return names, remove
}

// want expects the names, in this order, and nothing before them.
func want(t *testing.T, names <-chan string, all ...string) {
	t.Helper()
	for _, name := range all {
		select {
		case got := <-names:
			if got != name {
				t.Fatalf("got %q, want %q", got, name)
			}
		case <-time.After(30 * time.Second):
			t.Fatalf("no event of %q", name)
		}
	}
}

func write(t *testing.T, path string) {
	t.Helper()
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
}

// Users of one directory get the events that they asked for, also after another one has left, and by whatever path.
func TestSharedDirectory(t *testing.T) {
	i := start(t)
	dir, link := t.TempDir(), filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	created, removeCreated := watch(t, i, dir, unix.IN_CREATE)
	deleted, _ := watch(t, i, link, unix.IN_DELETE)
	write(t, filepath.Join(dir, "a"))
	want(t, created, "a")
	if err := os.Remove(filepath.Join(dir, "a")); err != nil {
		t.Fatal(err)
	}
	want(t, deleted, "a")
	removeCreated()
	removeCreated()
	write(t, filepath.Join(dir, "b"))
	if err := os.Remove(filepath.Join(dir, "b")); err != nil {
		t.Fatal(err)
	}
	want(t, deleted, "b") // not its creation
	if len(created) > 0 {
		t.Errorf("%q was reported after the watch had ended", <-created)
	}
	again, _ := watch(t, i, dir, unix.IN_CREATE)
	write(t, filepath.Join(dir, "c"))
	want(t, again, "c")
}

// A directory that is deleted is reported, and one that is created again in its place can be watched.
func TestDeletedDirectory(t *testing.T) {
	i := start(t)
	dir := filepath.Join(t.TempDir(), "sub")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	names, remove := watch(t, i, dir, unix.IN_CREATE)
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	want(t, names, "")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	again, _ := watch(t, i, dir, unix.IN_CREATE)
	remove() // does not end the new one
	write(t, filepath.Join(dir, "a"))
	want(t, again, "a")
}

// What cannot be watched is an error, also where there is no instance.
func TestUnavailable(t *testing.T) {
	var none *inotify.Instance
	for _, i := range []*inotify.Instance{none, start(t)} {
		if remove, err := i.Watch(filepath.Join(t.TempDir(), "missing"), unix.IN_CREATE, nil); err == nil {
			t.Error("no error")
		} else {
			remove()
		}
	}
	if err := errors.Join(none.Run(t.Context()), none.Close()); err != nil {
		t.Error(err)
	}
	i, err := inotify.New() // one that never ran
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(i.Close(), i.Close()); err != nil {
		t.Error(err)
	}
}

// Drain reports what happened before it, also while Run runs and other goroutines drain, and without Run.
func TestDrain(t *testing.T) {
	idle, err := inotify.New()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = idle.Close() }()
	for name, i := range map[string]*inotify.Instance{"with Run": start(t), "without Run": idle} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			var all sync.WaitGroup
			for worker := range 4 {
				all.Go(func() {
					var mu sync.Mutex
					seen := map[string]bool{}
					remove, err := i.Watch(dir, unix.IN_CREATE, func(name string) {
						mu.Lock()
						defer mu.Unlock()
						seen[name] = true
					})
					if err != nil {
						t.Error(err)
						return
					}
					defer remove()
					for n := range 200 {
						name := fmt.Sprintf("%d-%d", worker, n)
						if err := errors.Join(os.WriteFile(filepath.Join(dir, name), nil, 0o600), i.Drain()); err != nil {
							t.Error(err)
							return
						}
						mu.Lock()
						if !seen[name] {
							t.Errorf("the creation of %s is not reported after Drain", name)
						}
						mu.Unlock()
					}
				})
			}
			all.Wait()
		})
	}
	if err := idle.Close(); err != nil {
		t.Fatal(err)
	}
	var none *inotify.Instance
	if idle.Drain() == nil || none.Drain() == nil {
		t.Error("an instance that is closed, and none, have no error")
	}
}
