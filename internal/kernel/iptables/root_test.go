// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"errors"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/weft-net/weft/internal/state"
)

// TestBelowARoot: a process in a container uses the host's program, not the container's, and none if the host has none.
func TestBelowARoot(t *testing.T) {
	ns, c := space(t)
	root := t.TempDir()
	mount := func(source, target, kind string, flags uintptr) {
		t.Helper()
		if err := syscall.Mount(source, target, kind, flags, ""); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = syscall.Unmount(target, syscall.MNT_DETACH) })
	}
	mount("/", root, "", syscall.MS_BIND|syscall.MS_REC)
	below := New(ns, root)
	want := []state.IPTables{pod("2", false)}
	if err := below.Apply(bounded(t), want); err != nil {
		t.Fatal(err)
	}
	if d, err := c.Diff(bounded(t), want); err != nil || len(d) > 0 {
		t.Errorf("not the same tables: %v %v", d, err)
	}
	for _, dir := range []string{"/usr/sbin", "/sbin", "/usr/local/sbin", "/usr/bin", "/bin"} {
		real, err := filepath.EvalSymlinks(dir)
		if err != nil {
			continue
		}
		mount("none", filepath.Join(root, real), "tmpfs", 0)
	}
	if err := below.Remove(bounded(t), want); !errors.Is(err, ErrAbsent) {
		t.Errorf("a host without the program: %v", err)
	}
	if err := c.Remove(bounded(t), want); err != nil {
		t.Fatal(err)
	}
}
