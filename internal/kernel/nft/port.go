// SPDX-License-Identifier: Apache-2.0

package nft

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// Port is the socket's, which the kernel names in what it tells others of our changes.
func (c *Conn) Port() (uint32, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for range 2 {
		name, err := unix.Getsockname(c.sock.fd)
		if err != nil {
			return 0, fmt.Errorf("netfilter socket: %w", err)
		}
		if sa, ok := name.(*unix.SockaddrNetlink); ok && sa.Pid != 0 {
			return sa.Pid, nil
		}
		if err := unix.Bind(c.sock.fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
			return 0, fmt.Errorf("netfilter socket: %w", err)
		}
	}
	return 0, fmt.Errorf("netfilter socket: the kernel gives it no port")
}
