// SPDX-License-Identifier: Apache-2.0

package rtnl

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// Port returns the socket's netlink port, by which the kernel names the sender of a change.
func (s *Socket) Port() (uint32, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for range 2 {
		name, err := unix.Getsockname(s.fd)
		if err != nil {
			return 0, fmt.Errorf("rtnetlink socket: %w", err)
		}
		if sa, ok := name.(*unix.SockaddrNetlink); ok && sa.Pid != 0 {
			return sa.Pid, nil
		}
		if err := unix.Bind(s.fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
			return 0, fmt.Errorf("rtnetlink socket: %w", err)
		}
	}
	return 0, fmt.Errorf("rtnetlink socket: it has no port")
}
