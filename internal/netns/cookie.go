// SPDX-License-Identifier: Apache-2.0

package netns

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Cookie is a number that no other namespace has until the machine boots again, as opposed to that of ID: an inode's
// number is given to the next one that is made. It is 0 where the kernel does not tell it (before Linux 5.14).
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

// Again opens the namespace once more: the two are closed each by itself.
func (n *NS) Again() (*NS, error) {
	if n.closed.Load() {
		return nil, fmt.Errorf("namespace %s: %w", n.path, os.ErrClosed)
	}
	fd, err := unix.FcntlInt(uintptr(n.fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("namespace %s: %w", n.path, err)
	}
	return FromFD(fd, n.path)
}
