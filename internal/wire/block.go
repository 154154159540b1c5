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
