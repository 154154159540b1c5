// SPDX-License-Identifier: Apache-2.0

// Package process identifies and terminates processes, including ones that this program did not start. It identifies a
// process by PID and start time, and signals it through a pidfd, so that a reused PID never refers to another process.
package process

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// ID identifies a process.
type ID struct {
	PID int `json:"pid"`
	// Start is in clock ticks since boot.
	Start uint64 `json:"start"`
}

// Read returns the process with a PID. A zombie does not count.
func Read(pid int) (ID, bool) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return ID{}, false
	}
	// The name is in parentheses and may contain any character.
	f := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
	if len(f) < 20 || f[0] == "Z" || f[0] == "X" {
		return ID{}, false
	}
	start, err := strconv.ParseUint(f[19], 10, 64)
	return ID{PID: pid, Start: start}, err == nil
}

// Alive reports whether the process still runs.
func (id ID) Alive() bool {
	now, ok := Read(id.PID)
	return ok && id.PID > 0 && now.Start == id.Start
}

// Open opens a pidfd of the process, which the caller must close. It returns os.ErrProcessDone if the process has exited.
func (id ID) Open() (int, error) {
	if id.PID <= 0 {
		return -1, os.ErrProcessDone
	}
	fd, err := unix.PidfdOpen(id.PID, 0)
	if errors.Is(err, unix.ESRCH) {
		return -1, os.ErrProcessDone
	}
	if err != nil {
		return -1, fmt.Errorf("process %d: %w", id.PID, err)
	}
	if !id.Alive() {
		_ = unix.Close(fd)
		return -1, os.ErrProcessDone
	}
	return fd, nil
}

// Signal sends a signal, unless the process has exited.
func (id ID) Signal(sig unix.Signal) error {
	fd, err := id.Open()
	if errors.Is(err, os.ErrProcessDone) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	if err := unix.PidfdSendSignal(fd, sig, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("process %d: %v: %w", id.PID, sig, err)
	}
	return nil
}

// Wait waits until the process has exited.
func (id ID) Wait(ctx context.Context) error {
	for wait := time.Millisecond; id.Alive(); wait = min(2*wait, 20*time.Millisecond) {
		select {
		case <-ctx.Done():
			return fmt.Errorf("process %d still runs: %w", id.PID, ctx.Err())
		case <-time.After(wait):
		}
	}
	return nil
}

// Terminate sends SIGTERM, and SIGKILL after the grace period. It returns when the process has exited, or if ctx ends
// before SIGKILL.
func (id ID) Terminate(ctx context.Context, grace time.Duration) error {
	if grace > 0 {
		if err := id.Signal(unix.SIGTERM); err != nil {
			return err
		}
		soft, cancel := context.WithTimeout(ctx, grace)
		err := id.Wait(soft)
		cancel()
		if err == nil || ctx.Err() != nil {
			return err
		}
	}
	if err := id.Signal(unix.SIGKILL); err != nil {
		return err
	}
	hard, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	return id.Wait(hard)
}

// ByEnv returns the processes that were started with an environment variable.
func ByEnv(name, value string) ([]ID, error) {
	return ByEnvFunc(name, func(v string) bool { return v == value })
}

// ByEnvFunc returns the processes that were started with an environment variable whose value matches.
func ByEnvFunc(name string, match func(value string) bool) ([]ID, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("processes: %w", err)
	}
	key := []byte("\x00" + name + "=")
	var out []ID
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		env, err := os.ReadFile("/proc/" + e.Name() + "/environ")
		if err != nil {
			continue // it has exited, or belongs to another user
		}
		_, value, ok := bytes.Cut(append([]byte{0}, env...), key)
		value, _, _ = bytes.Cut(value, []byte{0})
		if !ok || !match(string(value)) {
			continue
		}
		if id, ok := Read(pid); ok {
			out = append(out, id)
		}
	}
	return out, nil
}

// KillByEnv kills the processes that ByEnv returns, until there are none.
func KillByEnv(ctx context.Context, name, value string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	for {
		left, err := ByEnv(name, value)
		if err != nil || len(left) == 0 {
			return err
		}
		for _, id := range left {
			err = errors.Join(err, id.Signal(unix.SIGKILL))
		}
		if err != nil {
			return err
		}
		for _, id := range left {
			if err := id.Wait(ctx); err != nil {
				return err
			}
		}
	}
}
