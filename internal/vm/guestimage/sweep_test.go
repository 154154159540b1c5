// SPDX-License-Identifier: Apache-2.0

package guestimage

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestSweep: sweep removes images that were unused for a day, and no others.
func TestSweep(t *testing.T) {
	dir := t.TempDir()
	for name, age := range map[string]time.Duration{
		"initrd-old": 2 * unusedAge, "initrd-used": unusedAge / 2, "vmlinuz": 2 * unusedAge,
	} {
		path, at := filepath.Join(dir, name), time.Now().Add(-age)
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, at, at); err != nil {
			t.Fatal(err)
		}
	}
	if err := (Config{}).sweep(dir); err != nil {
		t.Fatal(err)
	}
	var left []string
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		left = append(left, e.Name())
	}
	if d := cmp.Diff([]string{"initrd-used", "vmlinuz"}, left); d != "" || err != nil {
		t.Error(d, err)
	}
}
