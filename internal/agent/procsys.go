// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// writableSysctls makes /proc/sys writable in a container that is not privileged: the runtime mounts it read-only, whatever
// capabilities the container has. Only this process' mounts are changed.
func writableSysctls() error {
	const dir = "/proc/sys"
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil || fs.Flags&unix.ST_RDONLY == 0 {
		return nil
	}
	if err := unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("%s is read-only and stays so: sysctls cannot be set: %w", dir, err)
	}
	return nil
}
