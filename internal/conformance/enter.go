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

// Inside is the environment variable that is set for a program in the kit's namespaces.
const Inside = "WEFT_CONFORMANCE_INSIDE"

// Command returns a command that runs a program in new network, mount and PID namespaces; as UID 0 of a user namespace
// if the caller is not root. Processes, mounts, and files below /run and /var/lib do not outlive it.
func Command(ctx context.Context, program string, args ...string) *exec.Cmd {
	const delay = 5 * time.Second
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env = append(os.Environ(), Inside+"=1")
	cmd.WaitDelay = delay
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

// Enter prepares the namespaces that Command has created: new /proc, /run and /var/lib, and below workDir the plugins
// and the program that is tested as runtime. It returns that program's new path.
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
	open := map[string]int{} // files below /run are hidden by the new mounts
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
	if err := mountPrivate(); err != nil {
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

func mountPrivate() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("private mounts: %w", err)
	}
	if err := unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("mount /proc: %w", err)
	}
	for _, dir := range []string{"/run", "/var/lib", "/etc/cni"} {
		if real, err := filepath.EvalSymlinks(dir); err != nil || real != dir {
			continue // the directory does not exist
		}
		if err := unix.Mount("tmpfs", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=0755"); err != nil {
			return fmt.Errorf("mount %s: %w", dir, err)
		}
	}
	return os.MkdirAll(workDir, 0o755)
}

// remountSys mounts /sys of the thread's network namespace. This may fail in a user namespace; then plugins that read
// /sys see the links of another namespace.
func remountSys() {
	if err := unix.Unmount("/sys", unix.MNT_DETACH); err != nil && !errors.Is(err, unix.EINVAL) {
		return
	}
	_ = unix.Mount("sysfs", "/sys", "sysfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "")
}
