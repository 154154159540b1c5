// SPDX-License-Identifier: Apache-2.0

package container

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/sandbox/process"
)

// PauseSpec describes the namespaces that a pause process creates and holds.
type PauseSpec struct {
	Sandbox  string
	Hostname string
	// Netns is the pod's network namespace; nil for the runtime's own.
	Netns   *netns.NS
	HostIPC bool
	HostPID bool
}

// StartPause starts the process that holds a sandbox's namespaces. The process locks dir/lock until it exits.
func StartPause(ctx context.Context, self []string, dir string, spec PauseSpec) (process.ID, error) {
	lock, err := process.Lock(ctx, filepath.Join(dir, "lock"), time.Second)
	if err != nil {
		return process.ID{}, fmt.Errorf("pause: %w", err)
	}
	defer func() { _ = lock.Close() }()
	r, w, err := os.Pipe()
	if err != nil {
		return process.ID{}, fmt.Errorf("pause: %w", err)
	}
	defer func() { _ = r.Close() }()
	cmd := exec.Command(self[0], append(self[1:len(self):len(self)], "sandbox", "pause", spec.Hostname)...)
	cmd.Dir = "/"
	cmd.Env = append(os.Environ(), EnvSandbox+"="+spec.Sandbox)
	cmd.ExtraFiles = []*os.File{lock, w}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Cloneflags: spec.flags()}
	err = spec.Netns.Do(cmd.Start)
	_ = w.Close()
	if err != nil {
		return process.ID{}, fmt.Errorf("pause: %w", err)
	}
	go func() { _ = cmd.Wait() }()
	id, ok := process.Read(cmd.Process.Pid)
	if err := readReport(ctx, r); err != nil || !ok {
		return id, errors.Join(fmt.Errorf("pause: %w", err), id.Signal(unix.SIGKILL))
	}
	return id, nil
}

func (s PauseSpec) flags() uintptr {
	var f uintptr
	if s.Netns != nil {
		f |= syscall.CLONE_NEWUTS // a pod with hostNetwork has the node's host name
	}
	if !s.HostIPC {
		f |= syscall.CLONE_NEWIPC
	}
	if !s.HostPID {
		f |= syscall.CLONE_NEWPID
	}
	return f
}

// pause holds namespaces until SIGTERM, and reaps zombies.
func pause(hostname string) error {
	unix.CloseOnExec(fdLock)
	out := os.NewFile(fdReport, "report")
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, unix.SIGTERM, unix.SIGINT)
	children := make(chan os.Signal, 1)
	signal.Notify(children, unix.SIGCHLD)
	if hostname != "" {
		if err := unix.Sethostname([]byte(hostname)); err != nil {
			return writeReport(out, report{Error: fmt.Sprintf("host name %q: %v", hostname, err)})
		}
	}
	if err := writeReport(out, report{}); err != nil {
		return err
	}
	for {
		for {
			if pid, err := unix.Wait4(-1, nil, unix.WNOHANG, nil); err != nil || pid <= 0 {
				break
			}
		}
		select {
		case <-stop:
			return nil
		case <-children:
		}
	}
}

// Reexec runs the hidden verbs of `weft sandbox` with which this package executes its own program. It reports whether
// args is such a verb.
func Reexec(self, args []string, stderr io.Writer) (code int, ok bool) {
	var err error
	switch {
	case len(args) == 2 && args[0] == "monitor":
		err = monitor(self, args[1])
	case len(args) == 1 && args[0] == "init-container":
		err = stage()
	case len(args) == 2 && args[0] == "pause":
		err = pause(args[1])
	default:
		return 0, false
	}
	if err != nil {
		fmt.Fprintf(stderr, "weft: %s: %v\n", args[0], err)
		return 1, true
	}
	return 0, true
}
