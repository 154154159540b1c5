// SPDX-License-Identifier: Apache-2.0

package export_test

import (
	"encoding/json"
	"errors"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/flow"
	"github.com/weft-net/weft/internal/flow/export"
	"github.com/weft-net/weft/internal/model"
)

func contains(s, part string) bool { return strings.Contains(s, part) }

// lines returns the source ports of the flows in a file; each line is a whole document.
func lines(t *testing.T, path string) (ports []uint16) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		var r flow.Record
		if err := json.Unmarshal([]byte(line), &r); err != nil || !strings.HasSuffix(line, "\n") {
			t.Fatalf("%s: %v in %q", path, err, line)
		}
		ports = append(ports, r.From.Port)
	}
	return ports
}

func write(t *testing.T, s export.Sink, from, n uint16) {
	t.Helper()
	var batch []flow.Record
	for i := range n {
		batch = append(batch, record(from+i))
	}
	if sent, err := s.Write(t.Context(), batch); err != nil || sent != int(n) {
		t.Fatalf("%d of %d: %v", sent, n, err)
	}
}

// TestRotation: files have at most their size, as many as wanted are kept, and no flow is missing in between.
func TestRotation(t *testing.T) {
	path := filepath.Join(t.TempDir(), "flows.json")
	const size = 4096
	s, err := export.NewFile(export.FileConfig{Path: path, MaxBytes: size, Keep: 2})
	if err != nil {
		t.Fatal(err)
	}
	for i := range uint16(20) {
		write(t, s, 1000+10*i, 10)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	var all []uint16
	for _, name := range []string{path + ".2", path + ".1", path} {
		if info, err := os.Stat(name); err != nil || info.Size() > size || info.Size() == 0 || info.Mode().Perm() != 0o600 {
			t.Fatalf("%s: %v, %v", name, info, err)
		}
		all = append(all, lines(t, name)...)
	}
	if _, err := os.Stat(path + ".3"); err == nil {
		t.Error("more files than wanted are kept")
	}
	for i := range all {
		if want := 1200 - uint16(len(all)-i); all[i] != want {
			t.Fatalf("flow %d of the files is %d, want %d", i, all[i], want)
		}
	}
	// The next agent appends.
	if s, err = export.NewFile(export.FileConfig{Path: path, MaxBytes: 1 << 20, Keep: 2}); err != nil {
		t.Fatal(err)
	}
	before := len(lines(t, path))
	write(t, s, 1, 1)
	if got := lines(t, path); len(got) != before+1 {
		t.Errorf("%d lines before, %d after another one", before, len(got))
	}
}

// TestRenamed: another program renames the file, as logrotate does, or deletes it.
func TestRenamed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "flows.json")
	s, err := export.NewFile(export.FileConfig{Path: path, MaxBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	write(t, s, 1, 2)
	if err := os.Rename(path, path+".old"); err != nil {
		t.Fatal(err)
	}
	write(t, s, 3, 2)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	write(t, s, 5, 1)
	if old, now := lines(t, path+".old"), lines(t, path); len(old) != 2 || len(now) != 1 || now[0] != 5 {
		t.Errorf("the renamed file has %v, the last one %v", old, now)
	}
}

// TestHalfLine: a killed agent has left half a line. The next one begins a line of its own.
func TestHalfLine(t *testing.T) {
	path := filepath.Join(t.TempDir(), "flows.json")
	if err := os.WriteFile(path, []byte(`{"time":"20`), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := export.NewFile(export.FileConfig{Path: path, MaxBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	write(t, s, 1, 1)
	b, err := os.ReadFile(path)
	if err != nil || strings.Count(string(b), "\n") != 2 || !strings.HasSuffix(string(b), "}\n") {
		t.Errorf("%v: %q", err, b)
	}
}

// TestNoDirectory: the error says which one to create; when it is there, flows are written.
func TestNoDirectory(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log", "flows.json")
	s, err := export.NewFile(export.FileConfig{Path: path, MaxBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	var m *model.Error
	if n, err := s.Write(t.Context(), []flow.Record{record(1)}); n != 0 || !errors.As(err, &m) || !contains(m.Hint, filepath.Dir(path)) {
		t.Errorf("%d, %v", n, err)
	}
	if err := os.Mkdir(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	write(t, s, 1, 2)
	if got := lines(t, path); len(got) != 2 {
		t.Errorf("the file has %v", got)
	}
}

// TestFullDisk: a line that does not fit is not begun; it is written when there is space.
func TestFullDisk(t *testing.T) {
	path := filepath.Join(t.TempDir(), "flows.json")
	s, err := export.NewFile(export.FileConfig{Path: path, MaxBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	write(t, s, 1, 1)
	full(t, path, func() {
		if sent, err := s.Write(t.Context(), []flow.Record{record(2), record(3)}); err == nil || sent != 0 {
			t.Errorf("%d sent: %v", sent, err)
		}
	})
	if got := lines(t, path); len(got) != 1 {
		t.Errorf("the file has %v", got)
	}
	write(t, s, 2, 2)
	if got := lines(t, path); len(got) != 3 {
		t.Errorf("the file has %v", got)
	}
}

// full runs f while files cannot grow by more than ten bytes. The kernel then ends a write early, as on a full disk.
func full(t *testing.T, path string, f func()) {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	var before unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_FSIZE, &before); err != nil {
		t.Fatal(err)
	}
	signal.Ignore(unix.SIGXFSZ)
	defer signal.Reset(unix.SIGXFSZ)
	if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: uint64(info.Size()) + 10, Max: before.Max}); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &before); err != nil {
			t.Error(err)
		}
	}()
	f()
}
