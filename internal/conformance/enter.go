// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Inside is the environment variable of a program that runs in the kit's namespaces.
const Inside = "WEFT_CONFORMANCE_INSIDE"

// Command starts a program in namespaces of its own: network, mounts and processes; as uid 0 of a user namespace when
// the caller is not root. Nothing that a plugin starts, mounts or writes below /run and /var/lib is there afterwards.
func Command(ctx context.Context, program string, args ...string) *exec.Cmd {
	const patience = 5 * time.Second
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env = append(os.Environ(), Inside+"=1")
	cmd.WaitDelay = patience
	attr := &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWPID, Pdeathsig: syscall.SIGKILL}
	if os.Geteuid() == 0 {
		attr.Unshareflags = syscall.CLONE_NEWNS // makes the mount tree private as well
	} else {
		attr.Cloneflags |= syscall.CLONE_NEWNS | syscall.CLONE_NEWUSER
		attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
		attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}
	}
	cmd.SysProcAttr = attr
	return cmd
}

// Enter furnishes the namespaces that Command has made: fresh /proc, /run and /var/lib, and the plugins and the program
// that is judged on the runtime's items below workDir. It gives that program's new path.
func Enter(cfg Config) (weft string, err error) {
	files := map[string]string{}
	present, err := cfg.programs()
	if err != nil {
		return "", err
	}
	for _, typ := range present {
		files["bin/"+typ] = filepath.Join(cfg.BinDir, typ)
	}
	if cfg.Weft != "" {
		files["weft"] = cfg.Weft
		for _, name := range []string{shimName, agentName} {
			if path := filepath.Join(filepath.Dir(cfg.Weft), name); isProgram(path) {
				files[name] = path
			}
		}
	}
	open := map[string]int{} // what stood below /run would be hidden
	defer func() {
		for _, fd := range open {
			_ = unix.Close(fd)
		}
	}()
	for name, path := range files {
		fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
		if err != nil {
			return "", fmt.Errorf("program %s: %w", path, err)
		}
		open[name] = fd
	}
	if err := furnish(); err != nil {
		return "", err
	}
	for name, fd := range open {
		target := filepath.Join(workDir, name)
		if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
			return "", err
		}
		if err := os.WriteFile(target, nil, 0o755); err != nil {
			return "", err
		}
		if err := unix.Mount(fmt.Sprintf("/proc/self/fd/%d", fd), target, "", unix.MS_BIND, ""); err != nil {
			return "", fmt.Errorf("program %s: %w", files[name], err)
		}
	}
	if cfg.Weft == "" {
		return "", os.MkdirAll(filepath.Join(workDir, "bin"), 0o755)
	}
	return filepath.Join(workDir, "weft"), os.MkdirAll(filepath.Join(workDir, "bin"), 0o755)
}

func furnish() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("private mounts: %w", err)
	}
	if err := unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("fresh /proc: %w", err)
	}
	for _, dir := range []string{"/run", "/var/lib", "/etc/cni"} {
		if real, err := filepath.EvalSymlinks(dir); err != nil || real != dir {
			continue // there is no such directory to hide
		}
		if err := unix.Mount("tmpfs", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=0755"); err != nil {
			return fmt.Errorf("fresh %s: %w", dir, err)
		}
	}
	return os.MkdirAll(workDir, 0o755)
}

// remountSys shows /sys of the namespace that the thread is in. A user namespace may refuse it; then plugins that look
// there see another node's links.
func remountSys() {
	if err := unix.Unmount("/sys", unix.MNT_DETACH); err != nil && !errors.Is(err, unix.EINVAL) {
		return
	}
	_ = unix.Mount("sysfs", "/sys", "sysfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "")
}
