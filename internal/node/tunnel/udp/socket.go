// SPDX-License-Identifier: Apache-2.0

package udp

import (
	"errors"
	"fmt"
	"net/netip"
	"unsafe"

	"golang.org/x/sys/unix"
)

// mmsghdr is one message of a batch (struct mmsghdr), which x/sys does not define.
type mmsghdr struct {
	head unix.Msghdr
	n    uint32
}

// buffer is the size of the socket's receive and send buffers in bytes: a burst must fit while the reader is being
// woken.
const buffer = 2 << 20

// socket is the node's socket in the underlay. Its descriptor blocks.
type socket struct {
	fd int
	// cuts reports that the kernel supports UDP_SEGMENT; joins that it supports UDP_GRO.
	cuts, joins bool
}

// listen opens the socket in the calling thread's namespace.
func listen(at netip.AddrPort) (s socket, err error) {
	family := unix.AF_INET6
	var name unix.Sockaddr = &unix.SockaddrInet6{Port: int(at.Port()), Addr: at.Addr().As16()}
	if at.Addr().Is4() {
		family, name = unix.AF_INET, &unix.SockaddrInet4{Port: int(at.Port()), Addr: at.Addr().As4()}
	}
	s.fd, err = unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return s, fmt.Errorf("udp socket: %w", err)
	}
	if family == unix.AF_INET6 {
		err = unix.SetsockoptInt(s.fd, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 1)
	}
	if err = errors.Join(err, unix.Bind(s.fd, name)); err != nil {
		_ = unix.Close(s.fd)
		return s, fmt.Errorf("udp %s: %w", at, err)
	}
	for _, opt := range []int{unix.SO_RCVBUFFORCE, unix.SO_SNDBUFFORCE} {
		_ = unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, opt, buffer) // otherwise the node's default is used
	}
	_, err = unix.GetsockoptInt(s.fd, unix.SOL_UDP, unix.UDP_SEGMENT)
	s.cuts = err == nil
	s.joins = unix.SetsockoptInt(s.fd, unix.SOL_UDP, unix.UDP_GRO, 1) == nil
	return s, nil
}

// receive returns waiting messages. If wait is set it blocks until there is at least one.
func (s *socket) receive(m []mmsghdr, wait bool) (int, unix.Errno) {
	p, n := uintptr(unsafe.Pointer(&m[0])), uintptr(len(m))
	if !wait {
		got, _, errno := unix.RawSyscall6(unix.SYS_RECVMMSG, uintptr(s.fd), p, n, unix.MSG_DONTWAIT, 0, 0)
		return int(got), errno
	}
	got, _, errno := unix.Syscall6(unix.SYS_RECVMMSG, uintptr(s.fd), p, n, unix.MSG_WAITFORONE, 0, 0)
	return int(got), errno
}

// send sends messages, and blocks only if the buffer is full. It returns how many were sent before the first failure.
func (s *socket) send(m []mmsghdr) (int, unix.Errno) {
	p, n := uintptr(unsafe.Pointer(&m[0])), uintptr(len(m))
	sent, _, errno := unix.RawSyscall6(unix.SYS_SENDMMSG, uintptr(s.fd), p, n, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL, 0, 0)
	if errno == unix.EAGAIN {
		sent, _, errno = unix.Syscall6(unix.SYS_SENDMMSG, uintptr(s.fd), p, n, unix.MSG_NOSIGNAL, 0, 0)
	}
	return int(sent), errno
}

// wake wakes the goroutine that blocks in receive.
func (s *socket) wake() { _ = unix.Shutdown(s.fd, unix.SHUT_RDWR) } // it returns ENOTCONN, but wakes nevertheless
