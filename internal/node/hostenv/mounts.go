// SPDX-License-Identifier: Apache-2.0

package hostenv

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// WritableSysctls makes /proc/sys writable in an unprivileged container: the runtime mounts it read-only, whatever
// capabilities the container has. Only this process's mounts are changed.
func WritableSysctls() error {
	const dir = "/proc/sys"
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil || fs.Flags&unix.ST_RDONLY == 0 {
		return nil
	}
	if err := unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC,
		""); err != nil {
		return fmt.Errorf("%s is read-only and could not be remounted: %w", dir, err)
	}
	return nil
}

// OwnProcesses mounts this container's /proc below the node's root: a plugin looks up its own process there, and the
// node's /proc has other PIDs. Only this container's mounts are changed.
func OwnProcesses(root string) error {
	if root == "" {
		return nil
	}
	const dir = "/proc"
	var own, theirs unix.Stat_t
	if err := errors.Join(unix.Stat(dir, &own), unix.Stat(root+dir, &theirs)); err != nil {
		return fmt.Errorf("install.hostRoot %q: %w", root, err)
	}
	if own.Dev == theirs.Dev {
		return nil
	}
	if err := unix.Mount(dir, root+dir, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("%s%s could not be replaced by this container's; other vendors' plugins fail: %w",
			root, dir, err)
	}
	return nil
}
