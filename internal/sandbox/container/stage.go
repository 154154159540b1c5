// SPDX-License-Identifier: Apache-2.0

package container

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

// stage runs inside the new namespaces and executes the container's command. It returns only if that fails.
func stage() error {
	unix.CloseOnExec(fdError)
	failure := os.NewFile(fdError, "error")
	in := os.NewFile(fdSpec, "spec")
	var spec Spec
	err := dieWithMonitor()
	if err == nil {
		err = json.NewDecoder(in).Decode(&spec)
	}
	_ = in.Close()
	if err == nil {
		err = spec.exec(func(format string, args ...any) {
			fmt.Fprintf(failure, "warning: "+format+"\n", args...)
		})
	}
	line := strings.ReplaceAll(err.Error(), "\n", "; ")
	_, _ = io.WriteString(failure, line+"\n")
	return err
}

// dieWithMonitor makes the kernel kill this process when its monitor dies. SysProcAttr.Pdeathsig cannot be used: it
// compares the parent's PID, which is 0 in a PID namespace that the process joined. The setting belongs to the thread,
// and the thread that executes the command keeps it.
func dieWithMonitor() error {
	runtime.LockOSThread()
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0); err != nil {
		return fmt.Errorf("parent death signal: %w", err)
	}
	fds := []unix.PollFd{{Fd: fdError, Events: unix.POLLOUT}}
	if _, err := unix.Poll(fds, 0); err == nil && fds[0].Revents&unix.POLLERR != 0 {
		return errors.New("the monitor is dead") // it died before prctl
	}
	return nil
}

// exec sets up the mounts and executes the command.
func (s Spec) exec(warn func(string, ...any)) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make the mounts private: %w", err)
	}
	unmountNamespaces()
	if !s.HostPID {
		if err := unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
			warn("/proc shows the processes of the node: %v", err)
		}
	}
	if !s.HostNet {
		// A sysfs shows the network namespace of the process that mounted it.
		if err := unix.Mount("sysfs", "/sys", "sysfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC|unix.MS_RDONLY,
			""); err != nil {
			warn("/sys shows the network of the node: %v", err)
		}
	}
	for _, f := range s.Files {
		if err := unix.Mount(f.Source, f.Target, "", unix.MS_BIND, ""); err != nil {
			warn("%s is the node's file: %v", f.Target, err)
		}
	}
	dir := s.Dir
	if dir == "" {
		dir = "/"
	}
	if err := os.Chdir(dir); err != nil {
		return fmt.Errorf("workingDir %s: %w", dir, err)
	}
	path, err := s.findCommand()
	if err != nil {
		return err
	}
	if err := unix.Exec(path, s.Argv, append(s.Env, EnvSandbox+"="+s.Sandbox)); err != nil {
		return fmt.Errorf("command %q: %w", s.Argv[0], err)
	}
	return nil
}

// findCommand looks up the command in the container's PATH.
func (s Spec) findCommand() (string, error) {
	if strings.Contains(s.Argv[0], "/") {
		return s.Argv[0], nil
	}
	path := defaultPath
	for _, kv := range s.Env {
		if v, ok := strings.CutPrefix(kv, "PATH="); ok {
			path = v
		}
	}
	for _, dir := range filepath.SplitList(path) {
		p := filepath.Join(dir, s.Argv[0])
		if _, err := exec.LookPath(p); err == nil {
			return p, nil
		}
	}
	return "", fmt.Errorf("command %q: %w in PATH %s", s.Argv[0], errors.New("not found"), path)
}

const defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// unmountNamespaces unmounts bind mounts of namespaces in this mount namespace: they would keep the network namespaces of
// other pods alive as long as this container runs.
func unmountNamespaces() {
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return
	}
	unescape := strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)
	for line := range strings.Lines(string(b)) {
		left, right, ok := strings.Cut(line, " - ")
		f := strings.Fields(left)
		if ok && len(f) > 4 && strings.HasPrefix(right, "nsfs ") {
			_ = unix.Unmount(unescape.Replace(f[4]), unix.MNT_DETACH)
		}
	}
}
