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

// report is what a monitor says once the command runs, or cannot.
type report struct {
	Process process.ID `json:"process"`
	Error   string     `json:"error,omitempty"`
}

// Start starts the container's command. self is the program that understands Hidden, with its leading arguments. The
// command goes on when the caller dies.
func Start(ctx context.Context, self []string, dir string) error {
	lock, err := process.Lock(ctx, filepath.Join(dir, "lock"), time.Second)
	if err != nil {
		return fmt.Errorf("container %s: it is being started already: %w", filepath.Base(dir), err)
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
	if err := hear(ctx, r); err != nil {
		return fmt.Errorf("container %s: %w", spec.Name, err)
	}
	return nil
}

// spawn starts this program again, in a session of its own, and forgets it but for reaping it.
func spawn(self, args []string, sandbox string, files ...*os.File) error {
	cmd := exec.Command(self[0], append(append(self[1:len(self):len(self)], "sandbox"), args...)...)
	cmd.Env = append(os.Environ(), Mark+"="+sandbox)
	cmd.Dir = "/"
	cmd.ExtraFiles = files
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return err
	}
	go func() { _ = cmd.Wait() }()
	return nil
}

// hear reads the report; it does not wait longer than ctx.
func hear(ctx context.Context, r *os.File) error {
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
		return errors.New("its monitor ended without a word")
	}
	if err := json.Unmarshal(b, &rep); err != nil {
		return fmt.Errorf("its monitor's report: %w", err)
	}
	if rep.Error != "" {
		return errors.New(rep.Error)
	}
	return nil
}

// Stop asks the command to end, kills it when the grace period is over, and waits until its end is written down.
func Stop(ctx context.Context, dir string, grace time.Duration) error {
	hard, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace+10*time.Second)
	defer cancel()
	for wait := time.Millisecond; ; wait = min(2*wait, 50*time.Millisecond) {
		var run running
		switch err := process.ReadJSON(filepath.Join(dir, "state.json"), &run); {
		case err == nil:
			if err := run.Process.End(ctx, grace); err != nil {
				return fmt.Errorf("container %s: %w", filepath.Base(dir), err)
			}
			return settled(hard, dir)
		case !errors.Is(err, os.ErrNotExist):
			return fmt.Errorf("container %s: %w", filepath.Base(dir), err)
		}
		if !watched(dir) {
			return nil // it never ran
		}
		select {
		case <-hard.Done():
			return fmt.Errorf("container %s: its monitor never starts it: %w", filepath.Base(dir), hard.Err())
		case <-time.After(wait):
		}
	}
}

// watched tells whether the container's monitor lives.
func watched(dir string) bool { return process.Locked(filepath.Join(dir, "lock")) }

// settled waits until the monitor has written what it has to write.
func settled(ctx context.Context, dir string) error {
	for watched(dir) {
		select {
		case <-ctx.Done():
			return fmt.Errorf("container %s: its monitor does not end: %w", filepath.Base(dir), ctx.Err())
		case <-time.After(2 * time.Millisecond):
		}
	}
	return nil
}

// Remove takes the container's directory and log away. It must not run any more.
func Remove(dir string) error {
	var spec Spec
	err := process.ReadJSON(filepath.Join(dir, "spec.json"), &spec)
	if err == nil && spec.Log != "" {
		if err := os.Remove(spec.Log); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("container %s: log: %w", spec.Name, err)
		}
		_ = os.Remove(filepath.Dir(spec.Log)) // when it was the last log
	}
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("container %s: %w", filepath.Base(dir), err)
	}
	return nil
}

// kinds are the namespaces of the pause process that the container joins.
func (s Spec) kinds() int {
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
