// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// call is a raw system call, without Go's scheduler: the process has nothing else to run while it blocks. The runtime's
// signals interrupt calls, which are then restarted.
//
//go:uintptrescapes
func call(trap, a, b, c uintptr) (int, error) {
	for {
		n, _, errno := syscall.RawSyscall(trap, a, b, c)
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
	return call(unix.SYS_READ, uintptr(fd), uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)))
}

func write(fd int, b []byte) (int, error) {
	return call(unix.SYS_WRITE, uintptr(fd), uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)))
}

// poll waits until one of the descriptors is readable or closed by its peer.
func poll(fds []unix.PollFd) error {
	// ppoll without timeout and mask, because arm64 has no poll. It has more arguments than call accepts.
	for {
		_, _, errno := syscall.RawSyscall6(unix.SYS_PPOLL, uintptr(unsafe.Pointer(&fds[0])), uintptr(len(fds)), 0, 0, 0, 0)
		switch {
		case errno == unix.EINTR:
		case errno != 0:
			return errno
		default:
			return nil
		}
	}
}
