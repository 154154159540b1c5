// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"syscall"
	"unsafe"
)

// Accept waits for a caller at a listening socket; Read waits for bytes.
//
// They are syscall.Accept4 and syscall.Read but for one thing: they tell the Go runtime at once that they will block. For
// an ordinary system call the runtime keeps the processor reserved and lets a monitor look every 20 µs, for up to 10 ms,
// whether the call is back: 40 to 50 system calls for nothing in each of the two processes of a CNI call, as many as all
// its work takes. The runtime keeps the two functions that are linked here for programs that must do this (gVisor).
func Accept(fd int) (int, error) {
	n, e := block(syscall.SYS_ACCEPT4, uintptr(fd), 0, 0, syscall.SOCK_CLOEXEC)
	if e != 0 {
		return -1, e
	}
	return int(n), nil
}

// Read reads at least one byte; 0 bytes are the end.
func Read(fd int, b []byte) (int, error) {
	if len(b) == 0 {
		return 0, nil
	}
	n, e := block(syscall.SYS_READ, uintptr(fd), uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)), 0)
	if e != 0 {
		return 0, e
	}
	return int(n), nil
}

// Pong gives everybody who connects to a listening socket an empty answer, until the socket is shut down. All of it is one
// long system call to the Go runtime: five hundred calls at a time keep every processor of the runtime busy for seconds, and
// each of their callers asks whether anybody is there. So nothing in it may need the runtime.
//
//go:nosplit
func Pong(fd int) {
	answer := [AnswerHeader]byte{'W', 'E', 'F', 'T'}
	entersyscallblock()
	for {
		conn, _, e := syscall.RawSyscall6(syscall.SYS_ACCEPT4, uintptr(fd), 0, 0, syscall.SOCK_CLOEXEC, 0, 0)
		if e == syscall.EINTR || e == syscall.ECONNABORTED {
			continue
		}
		if e != 0 {
			break
		}
		// Who did not wait for it does not need it.
		_, _, _ = syscall.RawSyscall6(syscall.SYS_SENDTO, conn, uintptr(unsafe.Pointer(&answer[0])), AnswerHeader,
			syscall.MSG_NOSIGNAL|syscall.MSG_DONTWAIT, 0, 0)
		_, _, _ = syscall.RawSyscall6(syscall.SYS_CLOSE, conn, 0, 0, 0, 0, 0)
	}
	exitsyscall()
}

// block is syscall.Syscall6 for a call that blocks.
//
//go:nosplit
//go:uintptrescapes
func block(trap, a, b, c, d uintptr) (uintptr, syscall.Errno) {
	entersyscallblock()
	r, _, e := syscall.RawSyscall6(trap, a, b, c, d, 0, 0)
	exitsyscall()
	return r, e
}

//go:linkname entersyscallblock runtime.entersyscallblock
func entersyscallblock()

//go:linkname exitsyscall runtime.exitsyscall
func exitsyscall()
