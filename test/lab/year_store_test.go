// SPDX-License-Identifier: Apache-2.0

package lab_test

import (
	"errors"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/atomicfile"
)

// TestRestoredStore: the blocks of addresses are lost, as by a backup from before them, while pods run that have addresses
// of them. Pods that are started at once get no address of theirs. Then the datastore does not know the former any more,
// either: they end, and the audit finds nothing.
func TestRestoredStore(t *testing.T) {
	dir := labDir(t)
	must(t, "lab", "up", "--nodes", "3", "--dir", dir, "--addresses", "pools", "--cluster-cidr", "10.42.0.0/24")
	apply := func(name string) {
		t.Helper()
		must(t, "lab", "apply", "--dir", dir, "-f", write(t, name+".yaml", deployment(name, 12, "infinity")))
	}
	store, backup := filepath.Join(dir, "store"), filepath.Join(t.TempDir(), "store")
	none := func(string) bool { return false }
	copyStore(t, store, backup, none) // no node has a block yet
	apply("late")
	before := podsNamed(status(t, dir), "late")

	// The late pods must not end before the next ones start: then these may have their addresses.
	ofLate := func(name string) bool { return strings.Contains(name, "-default-late") }
	copyStore(t, backup, store, ofLate)
	apply("next")
	st, _ := degradedStatus(t, dir)
	if running := podsNamed(st, "late"); len(running) != len(before) {
		t.Fatalf("%d of %d late pods run", len(running), len(before))
	}
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
	for _, name := range files(t, store) {
		if !ofLate(name) {
			continue
		}
		if err := os.Remove(filepath.Join(store, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
	}
	if !sometime(2*time.Minute, func() bool {
		st, _ := degradedStatus(t, dir)
		return len(podsNamed(st, "late")) == 0 && weft(t, "ipam", "check", "--store-dir", store).code == 0
	}) {
		t.Errorf("the audit finds:\n%s", weft(t, "ipam", "check", "--store-dir", store).stdout)
	}
	settled(t, dir)
}

// files returns the names of the files of a directory and those below it.
func files(t *testing.T, dir string) (names []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		name, err := filepath.Rel(dir, path)
		names = append(names, name)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// copyStore makes the files of a directory those of another one. Those of the directory that keep selects stay.
func copyStore(t *testing.T, from, to string, keep func(name string) bool) {
	t.Helper()
	if err := os.MkdirAll(to, 0o755); err != nil {
		t.Fatal(err)
	}
	wanted := files(t, from)
	for _, name := range wanted {
		text, err := os.ReadFile(filepath.Join(from, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue // a temporary file of an agent
		}
		if err == nil {
			err = os.MkdirAll(filepath.Dir(filepath.Join(to, name)), 0o755)
		}
		if err == nil {
			err = atomicfile.Write(filepath.Join(to, name), text, 0o644, atomicfile.CrashSafe)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range files(t, to) {
		if slices.Contains(wanted, name) || keep(name) {
			continue
		}
		if err := os.Remove(filepath.Join(to, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
	}
}
