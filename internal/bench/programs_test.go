// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"os"
	"path/filepath"
	"testing"
)

// TestProgramsAreCopied: names of one program stay links to it, and what is no program is left out.
func TestProgramsAreCopied(t *testing.T) {
	from, to := t.TempDir(), t.TempDir()
	program := filepath.Join(t.TempDir(), "weft-plugin")
	if err := os.WriteFile(program, []byte("text"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, target := range map[string]string{"bridge": program, "tuning": program, "gone": program + "-x"} {
		if err := os.Symlink(target, filepath.Join(from, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(from, "dir"), 0o755); err != nil {
		t.Fatal(err)
	}
	i, err := Impl{Name: "x", BinDir: from, Program: program}.copied(to)
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{filepath.Join(i.BinDir, "bridge"), filepath.Join(i.BinDir, "tuning"), i.Program} {
		file, err := filepath.EvalSymlinks(path)
		if err != nil {
			t.Fatal(err)
		}
		if st, err := os.Stat(file); err != nil || st.Size() != 4 || st.Mode().Perm()&0o100 == 0 {
			t.Errorf("%s: %v %v", path, st, err)
		}
		if rel, err := filepath.Rel(to, file); err != nil || !filepath.IsLocal(rel) {
			t.Errorf("%s is not a copy", file)
		}
	}
	if programs, err := programsIn(i.BinDir); err != nil || len(programs) != 1 {
		t.Errorf("programs %v (%v)", programs, err)
	}
	if entries, err := os.ReadDir(i.BinDir); err != nil || len(entries) != 2 {
		t.Errorf("entries %v (%v)", entries, err)
	}
}
