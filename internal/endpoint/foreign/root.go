// SPDX-License-Identifier: Apache-2.0

package foreign

import (
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// executable reports whether a path is a program. Symbolic links are resolved within Root.
func (r *Runner) executable(path string) bool {
	if r.Root == "" {
		st, err := os.Stat(path)
		return err == nil && st.Mode().IsRegular() && st.Mode()&0o111 != 0
	}
	root, err := unix.Open(r.Root, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer func() { _ = unix.Close(root) }()
	fd, err := unix.Openat2(root, strings.TrimPrefix(path, "/"), &unix.OpenHow{
		Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT,
	})
	if err != nil {
		return false
	}
	defer func() { _ = unix.Close(fd) }()
	var st unix.Stat_t
	return unix.Fstat(fd, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFREG && st.Mode&0o111 != 0
}
