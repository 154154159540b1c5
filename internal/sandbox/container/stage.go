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

// stage runs inside the new namespaces and becomes the container's command. It returns only when it cannot.
func stage() error {
	unix.CloseOnExec(fdProblem)
	problem := os.NewFile(fdProblem, "problem")
	in := os.NewFile(fdSpec, "spec")
	var spec Spec
	err := dieWithMonitor()
	if err == nil {
		err = json.NewDecoder(in).Decode(&spec)
	}
	_ = in.Close()
	if err == nil {
		err = spec.become(func(format string, args ...any) {
			fmt.Fprintf(problem, "warning: "+format+"\n", args...)
		})
	}
	line := strings.ReplaceAll(err.Error(), "\n", "; ")
	_, _ = io.WriteString(problem, line+"\n")
	return err
}

// dieWithMonitor has the kernel kill this process when its monitor dies. SysProcAttr.Pdeathsig would do it too, but it
// compares parents' numbers, and in a process namespace that was joined the parent has none. The setting belongs to
// the thread, and stays with the one that becomes the command.
func dieWithMonitor() error {
	runtime.LockOSThread()
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0); err != nil {
		return fmt.Errorf("parent death signal: %w", err)
	}
	fds := []unix.PollFd{{Fd: fdProblem, Events: unix.POLLOUT}}
	if _, err := unix.Poll(fds, 0); err == nil && fds[0].Revents&unix.POLLERR != 0 {
		return errors.New("the monitor is dead") // it died before the line above
	}
	return nil
}

func (s Spec) become(warn func(string, ...any)) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make the mounts private: %w", err)
	}
	leaveNamespaceMounts()
	if !s.HostPID {
		if err := unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
			warn("/proc shows the processes of the node: %v", err)
		}
	}
	if !s.HostNet {
		// A sysfs shows the network of the one who mounted it.
		if err := unix.Mount("sysfs", "/sys", "sysfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC|unix.MS_RDONLY,
			""); err != nil {
			warn("/sys shows the network of the node: %v", err)
		}
	}
	for _, f := range s.Files {
		if err := unix.Mount(f.Source, f.Target, "", unix.MS_BIND, ""); err != nil {
			warn("%s is the node's own: %v", f.Target, err)
		}
	}
	dir := s.Dir
	if dir == "" {
		dir = "/"
	}
	if err := os.Chdir(dir); err != nil {
		return fmt.Errorf("workingDir %s: %w", dir, err)
	}
	path, err := s.find()
	if err != nil {
		return err
	}
	if err := unix.Exec(path, s.Argv, append(s.Env, Mark+"="+s.Sandbox)); err != nil {
		return fmt.Errorf("command %q: %w", s.Argv[0], err)
	}
	return nil
}

// find looks the command up in the container's own PATH.
func (s Spec) find() (string, error) {
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

// leaveNamespaceMounts takes the bind mounts of namespaces out of this mount namespace: they would keep the networks
// of other pods alive as long as this container runs.
func leaveNamespaceMounts() {
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
