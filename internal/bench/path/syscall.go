// SPDX-License-Identifier: Apache-2.0

package path

import (
	"errors"
	"fmt"
	"net/netip"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ioTimeout limits one read or write: longer than TCP's retransmission timeout.
const ioTimeout = 3 * time.Second

// socket opens a socket with timeouts.
func socket(kind int) (int, error) {
	fd, err := unix.Socket(unix.AF_INET, kind|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	wait := unix.NsecToTimeval(int64(ioTimeout))
	err = errors.Join(
		unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &wait),
		unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &wait))
	if kind == unix.SOCK_STREAM && err == nil {
		err = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1)
	}
	if err != nil {
		_ = unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

func dial(kind int, to netip.AddrPort) (int, error) {
	fd, err := socket(kind)
	if err != nil {
		return -1, err
	}
	err = unix.EINTR
	for errors.Is(err, unix.EINTR) { // a signal of the runtime; the kernel continues to connect
		err = unix.Connect(fd, &unix.SockaddrInet4{Port: int(to.Port()), Addr: to.Addr().As4()})
	}
	if err != nil && !errors.Is(err, unix.EISCONN) {
		_ = unix.Close(fd)
		return -1, fmt.Errorf("connect to %s: %w", to, err)
	}
	return fd, nil
}

// call is a raw system call, without Go's scheduler: the process has nothing else to run while it blocks. The runtime's
// signals interrupt calls with a timeout, which are then restarted.
//
//go:uintptrescapes
func call(trap, a, b, c, d, e, f uintptr) (int, error) {
	for {
		n, _, errno := syscall.RawSyscall6(trap, a, b, c, d, e, f)
		switch {
		case errno == unix.EINTR:
		case errno != 0:
			return 0, errno
		default:
			return int(n), nil
		}
	}
}

func read(fd int, b []byte) (int, error) {
	return call(unix.SYS_READ, uintptr(fd), uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)), 0, 0, 0)
}

func write(fd int, b []byte) error {
	_, err := call(unix.SYS_WRITE, uintptr(fd), uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)), 0, 0, 0)
	return err
}

// recvFrom receives a datagram and its sender's address.
func recvFrom(fd int, b []byte, sender *unix.RawSockaddrInet4) (int, error) {
	size := uint32(unix.SizeofSockaddrInet4)
	return call(unix.SYS_RECVFROM, uintptr(fd), uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)), 0,
		uintptr(unsafe.Pointer(sender)), uintptr(unsafe.Pointer(&size)))
}

func sendTo(fd int, b []byte, sender *unix.RawSockaddrInet4) {
	_, _ = call(unix.SYS_SENDTO, uintptr(fd), uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)), 0,
		uintptr(unsafe.Pointer(sender)), unix.SizeofSockaddrInet4)
}

func accept(fd int) (int, error) {
	return call(unix.SYS_ACCEPT4, uintptr(fd), 0, 0, unix.SOCK_CLOEXEC, 0, 0)
}
