// SPDX-License-Identifier: Apache-2.0

package netns

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Cookie returns a number that no other namespace has until the host reboots. An ID, by contrast, is an inode number,
// which the kernel reuses for a later namespace. It is 0 where the kernel has no cookies (before Linux 5.14).
func (n *NS) Cookie() (cookie uint64, err error) {
	err = n.Do(func() error {
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer func() { _ = unix.Close(fd) }()
		cookie, err = unix.GetsockoptUint64(fd, unix.SOL_SOCKET, unix.SO_NETNS_COOKIE)
		if err == unix.ENOPROTOOPT {
			return nil
		}
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("cookie of namespace %s: %w", n.path, err)
	}
	return cookie, nil
}

// Duplicate opens the namespace a second time; each NS is closed independently.
func (n *NS) Duplicate() (*NS, error) {
	if n.closed.Load() {
		return nil, fmt.Errorf("namespace %s: %w", n.path, os.ErrClosed)
	}
	fd, err := unix.FcntlInt(uintptr(n.fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("namespace %s: %w", n.path, err)
	}
	return FromFD(fd, n.path)
}
