// SPDX-License-Identifier: Apache-2.0

package hostenv

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// WritableSysctls makes /proc/sys writable in a container that is not privileged: the runtime mounts it read-only,
// whatever capabilities the container has. Only this process' mounts are changed.
func WritableSysctls() error {
	const dir = "/proc/sys"
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil || fs.Flags&unix.ST_RDONLY == 0 {
		return nil
	}
	if err := unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC,
		""); err != nil {
		return fmt.Errorf("%s is read-only and stays so: sysctls cannot be set: %w", dir, err)
	}
	return nil
}

// OwnProcesses makes the processes of this container those that plugins see below the node's root: the node's /proc
// speaks of the node's processes, and a plugin looks for itself there. Only this container's mounts are changed.
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
		return fmt.Errorf("%s%s cannot be this container's, other vendors' plugins will not find themselves: %w",
			root, dir, err)
	}
	return nil
}
