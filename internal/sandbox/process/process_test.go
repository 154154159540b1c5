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
		t.Fatal("the process does not exist")
	}
	go func() { _ = cmd.Wait() }()
	return id
}

// TestReusedPID: a process with the same PID and another start time gets no signal.
func TestReusedPID(t *testing.T) {
	id := sleep(t)
	other := ID{PID: id.PID, Start: id.Start + 1}
	if other.Alive() {
		t.Error("it counts as alive")
	}
	if _, err := other.Open(); !errors.Is(err, os.ErrProcessDone) {
		t.Errorf("open: %v", err)
	}
	if err := other.Terminate(context.Background(), 0); err != nil {
		t.Error(err)
	}
	if !id.Alive() {
		t.Error("another process was killed")
	}
	if err := (ID{}).Signal(unix.SIGKILL); err != nil {
		t.Error(err)
	}
}

func TestTerminate(t *testing.T) {
	id := sleep(t)
	if err := id.Terminate(context.Background(), 5*time.Second); err != nil || id.Alive() {
		t.Errorf("%v, alive %v", err, id.Alive())
	}
	if err := id.Terminate(context.Background(), 0); err != nil {
		t.Errorf("again: %v", err)
	}
}

func TestByEnv(t *testing.T) {
	mark := t.Name() + time.Now().String()
	a := sleep(t, "WEFT_X="+mark)
	b := sleep(t, "WEFT_X="+mark+"2")
	got, err := ByEnv("WEFT_X", mark)
	if err != nil || len(got) != 1 || got[0] != a {
		t.Errorf("%v, %v", got, err)
	}
	if err := KillByEnv(context.Background(), "WEFT_X", mark); err != nil || a.Alive() || !b.Alive() {
		t.Errorf("%v, alive %v and %v", err, a.Alive(), b.Alive())
	}
}

// TestLockIsInherited: a child process that inherits the file keeps it locked until it exits.
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
		t.Error("the child process does not keep the lock")
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	if Locked(path) {
		t.Error("the file is locked after its process exited")
	}
}
