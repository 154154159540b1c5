// SPDX-License-Identifier: Apache-2.0

package process

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/flock"
)

func sleep(t *testing.T, env ...string) ID {
	t.Helper()
	cmd := exec.Command("sleep", "100")
	cmd.Env = append(os.Environ(), env...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	id, ok := Read(cmd.Process.Pid)
	if !ok {
		t.Fatal("it is not there")
	}
	go func() { _ = cmd.Wait() }()
	return id
}

// Nothing is sent to a process that has the number and another start time.
func TestAnotherStartIsAnotherProcess(t *testing.T) {
	id := sleep(t)
	other := ID{PID: id.PID, Start: id.Start + 1}
	if other.Alive() {
		t.Error("it counts as alive")
	}
	if _, err := other.Open(); !errors.Is(err, os.ErrProcessDone) {
		t.Errorf("open: %v", err)
	}
	if err := other.End(context.Background(), 0); err != nil {
		t.Error(err)
	}
	if !id.Alive() {
		t.Error("the stranger was killed")
	}
	if err := (ID{}).Signal(unix.SIGKILL); err != nil {
		t.Error(err)
	}
}

func TestEnd(t *testing.T) {
	id := sleep(t)
	if err := id.End(context.Background(), 5*time.Second); err != nil || id.Alive() {
		t.Errorf("%v, alive %v", err, id.Alive())
	}
	if err := id.End(context.Background(), 0); err != nil {
		t.Errorf("again: %v", err)
	}
}

func TestMarked(t *testing.T) {
	mark := t.Name() + time.Now().String()
	a := sleep(t, "WEFT_X="+mark)
	b := sleep(t, "WEFT_X="+mark+"2")
	got, err := Marked("WEFT_X", mark)
	if err != nil || len(got) != 1 || got[0] != a {
		t.Errorf("%v, %v", got, err)
	}
	if err := KillMarked(context.Background(), "WEFT_X", mark); err != nil || a.Alive() || !b.Alive() {
		t.Errorf("%v, alive %v and %v", err, a.Alive(), b.Alive())
	}
}

// A lock is held by whoever inherited it, as long as it lives.
func TestLockIsInherited(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	f, err := Lock(t.Context(), path, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Lock(t.Context(), path, 20*time.Millisecond); !errors.Is(err, flock.ErrHeld) {
		t.Errorf("second lock: %v", err)
	}
	cmd := exec.Command("sleep", "100")
	cmd.ExtraFiles = []*os.File{f}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = f.Close()
	if !Locked(path) {
		t.Error("the heir does not hold it")
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	if Locked(path) {
		t.Error("a dead process holds it")
	}
}
