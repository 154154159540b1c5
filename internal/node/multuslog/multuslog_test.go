// SPDX-License-Identifier: Apache-2.0

package multuslog

import (
	"bytes"
	"compress/gzip"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/multinet"
)

// logAt returns a log whose clock is at, and where its warnings go.
func logAt(at *time.Time) (*Log, *bytes.Buffer) {
	var said bytes.Buffer
	return &Log{Log: slog.New(slog.NewTextHandler(&said, nil)), Now: func() time.Time { return *at }}, &said
}

// TestLine: a line has the time, the level and the text, and levels above the configured one are left out.
func TestLine(t *testing.T) {
	now := time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
	l, said := logAt(&now)
	c := multinet.Logging{File: filepath.Join(t.TempDir(), "a", "multus.log"), Level: multinet.LogVerbose, MaxSize: 1}
	l.Write(c, multinet.LogVerbose, "Add: %s", "x\ny")
	l.Write(c, multinet.LogDebug, "more")
	l.Write(c, multinet.LogError, "bad")
	text, err := os.ReadFile(c.File)
	if want := "2026-03-04T05:06:07Z [verbose] Add: x\\ny\n2026-03-04T05:06:07Z [error] bad\n"; err != nil || string(text) != want {
		t.Errorf("%q, %v, want %q", text, err, want)
	}
	if said.Len() > 0 {
		t.Errorf("the agent's log has %s", said)
	}
	c.Stderr = true
	l.Write(c, multinet.LogVerbose, "Del: z")
	if !strings.Contains(said.String(), `line="Del: z"`) {
		t.Errorf("the agent's log has %q", said)
	}
}

// TestRotation: the file stays below its size, and of rotated files there are as many, as old and as small as wanted.
func TestRotation(t *testing.T) {
	now := time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
	l, said := logAt(&now)
	dir := t.TempDir()
	c := multinet.Logging{
		File: filepath.Join(dir, "multus.log"), Level: multinet.LogDebug, MaxSize: 1, MaxBackups: 2, MaxAge: 3, Compress: true,
	}
	for _, name := range []string{"other-2026-03-04T05-06-07.000.log", "multus-notes.log"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	line := strings.Repeat("x", 600<<10) // two are more than a megabyte
	rotated := func() []string {
		t.Helper()
		all, err := filepath.Glob(filepath.Join(dir, "multus-2*"))
		if err != nil {
			t.Fatal(err)
		}
		for i := range all {
			all[i] = filepath.Base(all[i])
		}
		return all
	}
	for range 4 {
		l.Write(c, multinet.LogDebug, "%s", line)
		l.Wait() // two rotations at once would be tidied once
		now = now.Add(time.Second)
	}
	want := []string{"multus-2026-03-04T05-06-09.000.log.gz", "multus-2026-03-04T05-06-10.000.log.gz"}
	if have := rotated(); !slices.Equal(have, want) {
		t.Errorf("%v, want %v", have, want)
	}
	f, err := os.Open(filepath.Join(dir, want[0]))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	if text, err := io.ReadAll(z); err != nil || !strings.HasSuffix(string(text), " [debug] "+line+"\n") {
		t.Errorf("the rotated file has %d bytes, %v", len(text), err)
	}
	now = now.Add(10 * 24 * time.Hour)
	c.Compress = false
	l.Write(c, multinet.LogDebug, "%s", line)
	l.Wait()
	if have, want := rotated(), []string{"multus-2026-03-14T05-06-11.000.log"}; !slices.Equal(have, want) {
		t.Errorf("ten days later %v, want %v", have, want)
	}
	for _, name := range []string{"other-2026-03-04T05-06-07.000.log", "multus-notes.log"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			t.Errorf("another file: %v", err)
		}
	}
	if said.Len() > 0 {
		t.Errorf("the agent's log has %s", said)
	}
}

// TestUnwritable: why a file cannot be written is said once, and again after it could be. A pipe without a reader would
// block forever.
func TestUnwritable(t *testing.T) {
	now := time.Now()
	l, said := logAt(&now)
	c := multinet.Logging{File: filepath.Join(t.TempDir(), "pipe"), Level: multinet.LogDebug, MaxSize: 1}
	for round := 1; round <= 2; round++ {
		if err := unix.Mkfifo(c.File, 0o600); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			l.Write(c, multinet.LogError, "bad")
		}
		if n := strings.Count(said.String(), "is no regular file"); n != round {
			t.Errorf("round %d: said %d times: %s", round, n, said)
		}
		if err := os.Remove(c.File); err != nil {
			t.Fatal(err)
		}
		l.Write(c, multinet.LogError, "bad")
		if err := os.Remove(c.File); err != nil {
			t.Fatal(err)
		}
	}
}
