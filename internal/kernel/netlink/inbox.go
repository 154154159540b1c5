// SPDX-License-Identifier: Apache-2.0

package netlink

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// inbox reads several datagrams with one system call (recvmmsg), which x/sys does not have.
type inbox struct {
	count, size int
	senders     bool // who sent a datagram is read, too
	control     int  // bytes of control messages that are read, too
	buf         []byte
	datagrams   [][]byte
	iov         []unix.Iovec
	hdr         []mmsghdr
	from        []unix.RawSockaddrNetlink
	oob         []byte
}

// mmsghdr is the kernel's struct of that name.
type mmsghdr struct {
	hdr unix.Msghdr
	n   uint32
}

// read returns the available datagrams, at least one, or an error; it never waits. A datagram that is longer than the
// buffer is truncated, which the function that splits it detects. With quick the Go scheduler is not notified of the
// call: that is for answers that are already available, and not for dumps, which the kernel generates while they are
// read.
func (in *inbox) read(fd int, quick bool) ([][]byte, error) {
	if in.buf == nil {
		in.buf = make([]byte, in.count*in.size)
		in.datagrams, in.iov, in.hdr = make([][]byte, in.count), make([]unix.Iovec, in.count), make([]mmsghdr, in.count)
		for i := range in.hdr {
			in.iov[i].Base = &in.buf[i*in.size]
			in.iov[i].SetLen(in.size)
			in.hdr[i].hdr.Iov = &in.iov[i]
			in.hdr[i].hdr.SetIovlen(1)
		}
		if in.senders {
			in.from = make([]unix.RawSockaddrNetlink, in.count)
			for i := range in.hdr {
				in.hdr[i].hdr.Name = (*byte)(unsafe.Pointer(&in.from[i]))
			}
		}
		in.oob = make([]byte, in.count*in.control)
	}
	for i := range in.from {
		in.hdr[i].hdr.Namelen = unix.SizeofSockaddrNetlink
	}
	if in.control > 0 {
		for i := range in.hdr {
			in.hdr[i].hdr.Control = &in.oob[i*in.control]
			in.hdr[i].hdr.SetControllen(in.control)
		}
	}
	var n uintptr
	var errno unix.Errno
	if quick {
		n, _, errno = unix.RawSyscall6(unix.SYS_RECVMMSG, uintptr(fd), uintptr(unsafe.Pointer(&in.hdr[0])), uintptr(in.count),
			unix.MSG_DONTWAIT, 0, 0)
	} else {
		n, _, errno = unix.Syscall6(unix.SYS_RECVMMSG, uintptr(fd), uintptr(unsafe.Pointer(&in.hdr[0])), uintptr(in.count),
			unix.MSG_DONTWAIT, 0, 0)
	}
	if errno != 0 {
		return nil, errno
	}
	for i := range in.datagrams[:n] {
		in.datagrams[i] = in.buf[i*in.size:][:min(int(in.hdr[i].n), in.size)]
	}
	return in.datagrams[:n], nil
}

// fromKernel reports whether a datagram of the last read is the kernel's, and not another process's.
func (in *inbox) fromKernel(i int) bool { return in.from[i].Pid == 0 }

// controls returns the control messages of a datagram of the last read.
func (in *inbox) controls(i int) []byte {
	return in.oob[i*in.control:][:min(int(in.hdr[i].hdr.Controllen), in.control)]
}

// truncated reports whether a datagram of the last read was longer than the buffer.
func (in *inbox) truncated(i int) bool { return in.hdr[i].hdr.Flags&unix.MSG_TRUNC != 0 }
