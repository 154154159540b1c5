// SPDX-License-Identifier: Apache-2.0

//go:build amd64 || arm64

package early

import (
	"syscall"
	"unsafe"
)

// at is the address of b for a system call. Nothing moves before the runtime starts.
func at(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }

// call is a system call of up to five arguments, again when a signal came between.
func call(trap, a, b, c, d, e uintptr) (uintptr, syscall.Errno) {
	for {
		r, _, err := syscall.RawSyscall6(trap, a, b, c, d, e, 0)
		if err != syscall.EINTR {
			return r, err
		}
	}
}

// read reads once. 0 bytes are the end.
func read(fd uintptr, b []byte) (int, syscall.Errno) {
	n, err := call(syscall.SYS_READ, fd, at(b), uintptr(len(b)), 0, 0)
	return int(n), err
}

// write writes all of b.
func write(fd uintptr, b []byte) bool {
	for len(b) > 0 {
		n, err := call(syscall.SYS_WRITE, fd, at(b), uintptr(len(b)), 0, 0)
		if err != 0 || n > uintptr(len(b)) {
			return false
		}
		b = b[n:]
	}
	return true
}

// shut closes a descriptor; what the kernel says to that is of no use.
func shut(fd uintptr) { _, _ = call(syscall.SYS_CLOSE, fd, 0, 0, 0, 0) }

// room is fresh memory for a large answer.
func room(size int) ([]byte, bool) {
	p, _, err := syscall.RawSyscall6(syscall.SYS_MMAP, 0, uintptr(size), syscall.PROT_READ|syscall.PROT_WRITE,
		syscall.MAP_PRIVATE|syscall.MAP_ANON, ^uintptr(0), 0)
	if err != 0 {
		return nil, false
	}
	return unsafe.Slice((*byte)(*(*unsafe.Pointer)(unsafe.Pointer(&p))), size), true
}

// dial connects to path, with suffix behind it, without waiting for an agent whose backlog is full.
func dial(path []byte, suffix string) (uintptr, bool) {
	var addr syscall.RawSockaddrUnix
	addr.Family = syscall.AF_UNIX
	size := unsafe.Offsetof(addr.Path) + uintptr(len(path)+len(suffix)) + 1
	if size > unsafe.Sizeof(addr) {
		return 0, false
	}
	for i, c := range path {
		addr.Path[i] = int8(c)
	}
	for i := range len(suffix) {
		addr.Path[len(path)+i] = int8(suffix[i])
	}
	fd, err := call(syscall.SYS_SOCKET, syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC|syscall.SOCK_NONBLOCK, 0, 0, 0)
	if err != 0 {
		return 0, false
	}
	if _, err = call(syscall.SYS_CONNECT, fd, uintptr(unsafe.Pointer(&addr)), size, 0, 0); err != 0 {
		shut(fd)
		return 0, false
	}
	return fd, true
}

// openNetns opens a namespace's path, which ends with a zero byte. O_NONBLOCK: should it be a pipe without a writer,
// open would wait for ever.
func openNetns(path *byte) (uintptr, syscall.Errno) {
	const here = ^uintptr(99) // AT_FDCWD, -100
	return call(syscall.SYS_OPENAT, here, uintptr(unsafe.Pointer(path)), syscall.O_RDONLY|syscall.O_CLOEXEC|syscall.O_NONBLOCK, 0, 0)
}

// rights is the control message that passes one descriptor (SCM_RIGHTS).
type rights struct {
	head syscall.Cmsghdr
	fd   int32
	_    int32
}

// send hands a request over in one message; ns is passed along if that is wanted.
func send(fd uintptr, b []byte, ns uintptr, pass bool) bool {
	iov := syscall.Iovec{Base: unsafe.SliceData(b), Len: uint64(len(b))}
	msg := syscall.Msghdr{Iov: &iov, Iovlen: 1}
	var r rights
	if pass {
		r.head.Len = uint64(unsafe.Offsetof(r.fd) + unsafe.Sizeof(r.fd))
		r.head.Level, r.head.Type, r.fd = syscall.SOL_SOCKET, syscall.SCM_RIGHTS, int32(ns)
		msg.Control, msg.Controllen = (*byte)(unsafe.Pointer(&r)), uint64(unsafe.Sizeof(r))
	}
	n, err := call(syscall.SYS_SENDMSG, fd, uintptr(unsafe.Pointer(&msg)), syscall.MSG_NOSIGNAL|syscall.MSG_DONTWAIT, 0, 0)
	return err == 0 && n == uintptr(len(b))
}

// pollFd is struct pollfd.
type pollFd struct {
	fd      int32
	events  int16
	revents int16
}

// wait waits until there is something to read.
func wait(fd uintptr, millis int64) bool {
	const pollIn = 1
	p := pollFd{fd: int32(fd), events: pollIn}
	for {
		t := syscall.Timespec{Sec: millis / 1000, Nsec: millis % 1000 * 1e6}
		n, _, err := syscall.RawSyscall6(syscall.SYS_PPOLL, uintptr(unsafe.Pointer(&p)), 1, uintptr(unsafe.Pointer(&t)), 0, 0, 0)
		if err != syscall.EINTR {
			return err == 0 && n == 1
		}
	}
}
