// SPDX-License-Identifier: Apache-2.0

package container

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/sandbox/process"
)

// report is the message of a monitor to the runtime when it has started the command, or failed to.
type report struct {
	Process process.ID `json:"process"`
	Error   string     `json:"error,omitempty"`
}

// Start starts the container's command. self is a program that calls Reexec, with its leading arguments. The command
// continues if the caller dies.
func Start(ctx context.Context, self []string, dir string) error {
	lock, err := process.Lock(ctx, filepath.Join(dir, "lock"), time.Second)
	if err != nil {
		return fmt.Errorf("container %s: already starting: %w", filepath.Base(dir), err)
	}
	defer func() { _ = lock.Close() }()
	var spec Spec
	if err := process.ReadJSON(filepath.Join(dir, "spec.json"), &spec); err != nil {
		return fmt.Errorf("container %s: %w", filepath.Base(dir), err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("container %s: %w", spec.Name, err)
	}
	defer func() { _ = r.Close() }()
	err = spawn(self, []string{"monitor", dir}, spec.Sandbox, lock, w)
	_ = w.Close()
	if err != nil {
		return fmt.Errorf("container %s: monitor: %w", spec.Name, err)
	}
	_ = lock.Close()
	if err := readReport(ctx, r); err != nil {
		return fmt.Errorf("container %s: %w", spec.Name, err)
	}
	return nil
}

// spawn executes this program in a session of its own, and reaps it.
func spawn(self, args []string, sandbox string, files ...*os.File) error {
	cmd := exec.Command(self[0], append(append(self[1:len(self):len(self)], "sandbox"), args...)...)
	cmd.Env = append(os.Environ(), EnvSandbox+"="+sandbox)
	cmd.Dir = "/"
	cmd.ExtraFiles = files
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return err
	}
	go func() { _ = cmd.Wait() }()
	return nil
}

// readReport reads the report until ctx ends.
func readReport(ctx context.Context, r *os.File) error {
	stop := context.AfterFunc(ctx, func() { _ = r.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	var rep report
	b, err := io.ReadAll(io.LimitReader(r, 1<<16))
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		return err
	case len(b) == 0:
		return errors.New("the monitor exited without a report")
	}
	if err := json.Unmarshal(b, &rep); err != nil {
		return fmt.Errorf("report of the monitor: %w", err)
	}
	if rep.Error != "" {
		return errors.New(rep.Error)
	}
	return nil
}

// Stop sends SIGTERM to the command, SIGKILL after the grace period, and waits until the exit code is recorded.
func Stop(ctx context.Context, dir string, grace time.Duration) error {
	hard, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace+10*time.Second)
	defer cancel()
	for wait := time.Millisecond; ; wait = min(2*wait, 50*time.Millisecond) {
		var run running
		switch err := process.ReadJSON(filepath.Join(dir, "state.json"), &run); {
		case err == nil:
			if err := run.Process.Terminate(ctx, grace); err != nil {
				return fmt.Errorf("container %s: %w", filepath.Base(dir), err)
			}
			return waitMonitor(hard, dir)
		case !errors.Is(err, os.ErrNotExist):
			return fmt.Errorf("container %s: %w", filepath.Base(dir), err)
		}
		if !monitored(dir) {
			return nil // it was never started
		}
		select {
		case <-hard.Done():
			return fmt.Errorf("container %s: the monitor does not start it: %w", filepath.Base(dir), hard.Err())
		case <-time.After(wait):
		}
	}
}

// monitored reports whether the container's monitor runs.
func monitored(dir string) bool { return process.Locked(filepath.Join(dir, "lock")) }

// waitMonitor waits until the monitor has recorded the exit code and exited.
func waitMonitor(ctx context.Context, dir string) error {
	for monitored(dir) {
		select {
		case <-ctx.Done():
			return fmt.Errorf("container %s: the monitor does not exit: %w", filepath.Base(dir), ctx.Err())
		case <-time.After(2 * time.Millisecond):
		}
	}
	return nil
}

// Remove removes the directory and the log of a stopped container.
func Remove(dir string) error {
	var spec Spec
	err := process.ReadJSON(filepath.Join(dir, "spec.json"), &spec)
	if err == nil && spec.Log != "" {
		if err := os.Remove(spec.Log); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("container %s: log: %w", spec.Name, err)
		}
		_ = os.Remove(filepath.Dir(spec.Log)) // if that was the last log
	}
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("container %s: %w", filepath.Base(dir), err)
	}
	return nil
}

// namespaces returns the flags of the pause process's namespaces that the container joins.
func (s Spec) namespaces() int {
	k := 0
	if !s.HostNet {
		k |= unix.CLONE_NEWNET | unix.CLONE_NEWUTS
	}
	if !s.HostIPC {
		k |= unix.CLONE_NEWIPC
	}
	if s.SharePID && !s.HostPID {
		k |= unix.CLONE_NEWPID
	}
	return k
}
