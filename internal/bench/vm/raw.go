// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// call is a plain system call: a card has nothing else to run while it waits. Signals of Go's scheduler end calls that
// wait.
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

// poll waits until one of the descriptors has something to read, or nobody at its other end.
func poll(fds []unix.PollFd) error {
	// ppoll without a timeout and without a mask: arm64 has no poll. Raw as the others, with the two arguments that call
	// does not take.
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
