// SPDX-License-Identifier: Apache-2.0

package netns_test

import (
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/nettest"
)

func TestOpenOfWhatIsNone(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	ns := nettest.NS(t, "ns")
	for name, path := range map[string]string{
		"nothing": filepath.Join(dir, "nothing"), "below a file": filepath.Join(file, "ns"), "file": file, "directory": dir,
		"another kind": "/proc/self/ns/mnt",
	} {
		if got, err := netns.Open(path); !errors.Is(err, netns.ErrGone) {
			t.Errorf("%s: %v, want one that is ErrGone", name, err)
			if got != nil {
				_ = got.Close()
			}
		}
	}
	// What remains when the runtime has unmounted the namespace.
	if err := unix.Unmount(ns.Path(), unix.MNT_DETACH); err != nil {
		t.Fatal(err)
	}
	if _, err := netns.Open(ns.Path()); !errors.Is(err, netns.ErrGone) {
		t.Errorf("unmounted: %v, want one that is ErrGone", err)
	}
	if err := ns.Do(func() error { return nil }); err != nil {
		t.Errorf("an open namespace lives on when its path is gone: %v", err)
	}
}

func TestNewAndRemove(t *testing.T) {
	path := filepath.Join(t.TempDir(), "deep", "er", "ns")
	ns, err := netns.New(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := netns.New(path); !errors.Is(err, os.ErrExist) {
		t.Errorf("a second namespace at the same path: %v", err)
	}
	again, err := netns.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	own, err := netns.Current()
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		other *netns.NS
		want  bool
	}{{again, true}, {own, false}} {
		if same, err := netns.Same(ns, test.other); err != nil || same != test.want {
			t.Errorf("same as %s: %t (%v)", test.other.Path(), same, err)
		}
	}
	for _, n := range []*netns.NS{ns, again, own} {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	}
	for range 2 {
		if err := netns.Remove(path); err != nil {
			t.Errorf("remove: %v", err)
		}
	}
	if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the file stays: %v", err)
	}
}

func inode(t *testing.T) uint64 {
	t.Helper()
	ns, err := netns.Current()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ns.Close() }()
	id, err := ns.ID()
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// TestDoLeavesNoThreadBehind enters namespaces from many goroutines, also with functions that fail or that leave the
// thread in yet another namespace: no thread that later runs goroutines is outside its own namespace.
func TestDoLeavesNoThreadBehind(t *testing.T) {
	home := inode(t)
	namespaces := []*netns.NS{nettest.NS(t, "a"), nettest.NS(t, "b")}
	boom := errors.New("boom")
	var wg sync.WaitGroup
	for i := range 64 {
		ns := namespaces[i%2]
		wg.Go(func() {
			want, err := ns.ID()
			if err != nil {
				t.Error(err)
				return
			}
			err = ns.Do(func() error {
				if got := inode(t); got != want {
					t.Errorf("inside namespace %d, want %d", got, want)
				}
				if i%8 == 0 { // what f does to the thread must stay with the thread
					return unix.Unshare(unix.CLONE_NEWNET)
				}
				return boom
			})
			if i%8 != 0 && !errors.Is(err, boom) {
				t.Errorf("the error of f is lost: %v", err)
			}
		})
		wg.Go(func() {
			if got := inode(t); got != home {
				t.Errorf("outside: in namespace %d, home is %d", got, home)
			}
		})
	}
	wg.Wait()
	for range 256 {
		wg.Go(func() {
			if got := inode(t); got != home {
				t.Errorf("afterwards: in namespace %d, home is %d", got, home)
			}
		})
	}
	wg.Wait()
	var none *netns.NS
	if err := none.Do(func() error { return boom }); !errors.Is(err, boom) || inode(t) != home {
		t.Errorf("without a namespace: %v", err)
	}
}

func TestClosedNamespaceIsNotEntered(t *testing.T) {
	ns, err := netns.Anonymous()
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := ns.Close(); err != nil {
			t.Error(err)
		}
	}
	if _, err := ns.ID(); !errors.Is(err, os.ErrClosed) {
		t.Errorf("ID of a closed namespace: %v", err)
	}
	if err := ns.Do(func() error { return nil }); !errors.Is(err, os.ErrClosed) {
		t.Errorf("a closed namespace was entered: %v", err)
	}
}
