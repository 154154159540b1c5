// SPDX-License-Identifier: Apache-2.0

package lab_test

import (
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/atomicfile"
)

// TestRestoredStore: the datastore is replaced by a backup while pods run that it does not know. Pods that are started at
// once get no address of theirs, and when the former are gone the audit finds nothing.
func TestRestoredStore(t *testing.T) {
	dir := labDir(t)
	must(t, "lab", "up", "--nodes", "3", "--dir", dir, "--addresses", "pools", "--cluster-cidr", "10.42.0.0/24")
	apply := func(name string) {
		t.Helper()
		must(t, "lab", "apply", "--dir", dir, "-f", write(t, name+".yaml", deployment(name, 12, "infinity")))
	}
	store, backup := filepath.Join(dir, "store"), filepath.Join(t.TempDir(), "store")
	copyStore(t, store, backup) // no node has a block yet
	apply("late")
	before := podsNamed(status(t, dir), "late")

	copyStore(t, backup, store)
	apply("next")
	st, _ := degradedStatus(t, dir)
	owner := map[netip.Addr]string{}
	for _, p := range append(before, podsNamed(st, "next")...) {
		for _, a := range p.IPs {
			if other := owner[a]; other != "" {
				t.Errorf("pods %s and %s both have %s", other, p.Name, a)
			}
			owner[a] = p.Name
		}
	}
	if len(before) != 12 || len(owner) != 24 {
		t.Fatalf("%d late pods, %d addresses", len(before), len(owner))
	}
	if !sometime(2*time.Minute, func() bool { return weft(t, "ipam", "check", "--store-dir", store).code == 0 }) {
		t.Errorf("the audit finds:\n%s", weft(t, "ipam", "check", "--store-dir", store).stdout)
	}
	if r, code := reachOf(t, dir); code != 0 {
		t.Errorf("reach: %+v", r)
	}
}

// copyStore makes the files of a directory those of another one.
func copyStore(t *testing.T, from, to string) {
	t.Helper()
	wanted := map[string]bool{}
	walk := func(root string, do func(path, name string) error) {
		t.Helper()
		err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() {
				return err
			}
			name, err := filepath.Rel(root, path)
			if err != nil {
				return err
			}
			return do(path, name)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := os.MkdirAll(to, 0o755); err != nil {
		t.Fatal(err)
	}
	walk(from, func(path, name string) error {
		wanted[name] = true
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if err := os.MkdirAll(filepath.Dir(filepath.Join(to, name)), 0o755); err != nil {
			return err
		}
		return atomicfile.Write(filepath.Join(to, name), text, 0o644, atomicfile.CrashSafe)
	})
	walk(to, func(path, name string) error {
		if wanted[name] {
			return nil
		}
		return os.Remove(path)
	})
}
