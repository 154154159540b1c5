// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weft-net/weft/internal/lab/layout"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/nettest"
	"github.com/weft-net/weft/internal/sandbox/process"
)

func TestMain(m *testing.M) { os.Exit(nettest.Main(m)) }

func quiet(string, ...any) {}

func TestForeignDirectory(t *testing.T) {
	dir := t.TempDir()
	precious := filepath.Join(dir, "precious")
	if err := os.WriteFile(precious, []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	d, err := At(dir)
	if err != nil {
		t.Fatal(err)
	}
	_, _, claimed := d.claim(context.Background())
	for what, err := range map[string]error{"claim": claimed, "down": d.Down(context.Background(), quiet)} {
		var f *model.Error
		if !errors.As(err, &f) || !strings.Contains(f.Msg, `it contains "precious"`) {
			t.Errorf("%s: got %v, want an error that names the file", what, err)
		}
	}
	if entries, _ := os.ReadDir(dir); len(entries) != 1 {
		t.Errorf("the directory was changed: %v", entries)
	}
}

// TestTwoDowns: of two commands that take down a lab at the same time, the later one finds it gone, which is no error.
func TestTwoDowns(t *testing.T) {
	for range 30 {
		d := Dir(filepath.Join(t.TempDir(), "lab"))
		unlock, _, err := d.claim(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := d.Write(Marker{Phase: phaseStarting}); err != nil {
			t.Fatal(err)
		}
		downs := make(chan error)
		for range 2 {
			go func() { downs <- d.Down(t.Context(), quiet) }()
		}
		unlock()
		for range 2 {
			if err := <-downs; err != nil {
				t.Errorf("two commands: %v", err)
			}
		}
		if _, err := os.Stat(string(d)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("left: %v", err)
		}
	}
}

func TestDownIsIdempotentAndComplete(t *testing.T) {
	d := Dir(filepath.Join(t.TempDir(), "lab"))
	if err := d.Down(context.Background(), quiet); err != nil {
		t.Fatalf("no directory: %v", err)
	}
	unlock, old, err := d.claim(context.Background())
	if err != nil || old != nil {
		t.Fatalf("claim: %v %v", old, err)
	}
	if err := d.Down(context.Background(), quiet); err == nil ||
		!strings.Contains(err.Error(), "another weft command is using") {
		t.Errorf("during another up: got %v", err)
	}
	unlock()
	if err := d.Write(Marker{Phase: phaseStarting}); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(d.Node("node1", "agent"), 0o755); err != nil {
		t.Fatal(err)
	}
	// An up that was killed between creating and mounting a namespace leaves its file.
	if err := os.MkdirAll(d.at("ns"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(d.NS("node1"), nil, 0o444); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := d.Down(context.Background(), quiet); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(string(d)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the state directory is left: %v", err)
		}
	}
}

func TestForeignMarker(t *testing.T) {
	d := Dir(t.TempDir())
	for text, want := range map[string]string{
		"not json":         "is not the marker of a lab",
		"{}":               "is not the marker of a lab",
		`{"weftLab": 99}`:  "was created by a newer version of weft",
		`{"weftLab":"no"}`: "is not the marker of a lab",
	} {
		if err := os.WriteFile(d.at(markerName), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := d.Open(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("marker %s: got %v, want %q", text, err, want)
		}
		if err := d.Down(context.Background(), quiet); err == nil {
			t.Errorf("marker %s: down removed the directory", text)
		}
	}
}

func TestNameOfAnotherLab(t *testing.T) {
	u := Up{Dir: Dir(t.TempDir()), Spec: layout.Spec{Name: "mine"}, Logf: quiet}
	err := u.checkExisting(Marker{Phase: phaseUp, Layout: layout.Layout{Spec: layout.Spec{Name: "yours"}}})
	if err == nil || !strings.Contains(err.Error(), `belongs to lab "yours", not to "mine"`) {
		t.Errorf("got %v", err)
	}
}

func TestUnusablePaths(t *testing.T) {
	if _, err := At("/" + strings.Repeat("x", 90)); err == nil || !strings.Contains(err.Error(), "too long") {
		t.Errorf("long path: got %v", err)
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{filepath.Join(file, "below"), "/proc/nowhere"} {
		if _, _, err := Dir(path).claim(context.Background()); err == nil ||
			!strings.Contains(err.Error(), "is not writable") {
			t.Errorf("%s: got %v", path, err)
		}
	}
}

// TestPIDFileOfAnotherProcess: a PID file whose PID was reused does not count as running.
func TestPIDFileOfAnotherProcess(t *testing.T) {
	d := Dir(t.TempDir())
	if err := os.MkdirAll(d.Node("node1"), 0o755); err != nil {
		t.Fatal(err)
	}
	self, _ := process.Read(os.Getpid())
	for _, c := range []struct {
		id   process.ID
		want bool
	}{{self, true}, {process.ID{PID: self.PID, Start: self.Start + 1}, false}} {
		if err := process.WriteJSON(d.pidFile("node1", roleAgent), c.id); err != nil {
			t.Fatal(err)
		}
		if got := d.running("node1", roleAgent); got != c.want {
			t.Errorf("%+v runs: %v", c.id, got)
		}
	}
}
