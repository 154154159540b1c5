// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// copied returns the implementation with copies of its programs below dir, written as an installation writes them.
// Otherwise programs are not comparable: the linker of Go writes its output through a mapping, so that the page cache
// has it in single pages, each of which costs a fault of its own, while a file that was written or read as a whole is
// there in larger parts. That is a sixth of the CPU time of weft-plugin.
func (i Impl) copied(dir string) (Impl, error) {
	to := filepath.Join(dir, "bin")
	if err := os.MkdirAll(to, 0o755); err != nil {
		return i, err
	}
	entries, err := os.ReadDir(i.BinDir)
	if err != nil {
		return i, fmt.Errorf("programs: %w", err)
	}
	names := map[string]string{} // in to, by the program's file
	for _, e := range entries {
		file, err := filepath.EvalSymlinks(filepath.Join(i.BinDir, e.Name()))
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return i, fmt.Errorf("programs: %w", err)
		}
		if first, ok := names[file]; ok {
			if err := os.Symlink(first, filepath.Join(to, e.Name())); err != nil {
				return i, fmt.Errorf("programs: %w", err)
			}
			continue
		}
		if st, err := os.Stat(file); err != nil || !st.Mode().IsRegular() {
			continue
		}
		if err := copyProgram(filepath.Join(to, e.Name()), file); err != nil {
			return i, err
		}
		names[file] = e.Name()
	}
	i.BinDir = to
	if i.Program != "" {
		program := filepath.Join(dir, "program")
		if err := copyProgram(program, i.Program); err != nil {
			return i, err
		}
		i.Program = program
	}
	return i, nil
}

func copyProgram(to, from string) error {
	b, err := os.ReadFile(from)
	if err != nil {
		return fmt.Errorf("programs: %w", err)
	}
	if err := os.WriteFile(to, b, 0o755); err != nil {
		return fmt.Errorf("programs: %w", err)
	}
	return nil
}
