// SPDX-License-Identifier: Apache-2.0

package command

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/cli/ui"
	"github.com/weft-net/weft/internal/sandbox/process"
	"github.com/weft-net/weft/internal/vm/launch"
)

// TestWatchWaitsForExit: the pipe of a killed process is closed while the process still counts as alive. The watcher of its
// VM waits for the exit, and then cleans up the VM.
func TestWatchWaitsForExit(t *testing.T) {
	runner := exec.Command("sleep", "infinity")
	if err := runner.Start(); err != nil {
		t.Fatal(err)
	}
	end := func() { _ = runner.Process.Kill(); _ = runner.Wait() }
	t.Cleanup(end)
	id, ok := process.Read(runner.Process.Pid)
	if !ok {
		t.Fatal("the process is not found")
	}
	root := t.TempDir()
	dir := filepath.Join(root, "machines", "default,db")
	st := launch.Status{
		Namespace: "default", Name: "db", Phase: launch.Running, Runner: id, Dir: dir,
		Records: filepath.Join(root, "records"), Agent: filepath.Join(root, "none.sock"),
	}
	if err := launch.WriteStatus(st); err != nil {
		t.Fatal(err)
	}
	watched := make(chan error, 1)
	go func() {
		watched <- vmWatch(t.Context(), ui.Env{Stdin: strings.NewReader(""), Stdout: io.Discard, Stderr: io.Discard}, dir)
	}()
	select {
	case err := <-watched:
		t.Fatalf("the watcher did not wait: %v", err)
	case <-time.After(100 * time.Millisecond):
	}
	end()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	select {
	case err := <-watched:
		if err != nil {
			t.Fatal(err)
		}
	case <-ctx.Done():
		t.Fatal("the watcher does not exit")
	}
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the VM was not removed: %v", err)
	}
}
