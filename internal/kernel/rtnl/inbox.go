// SPDX-License-Identifier: Apache-2.0

package rtnl

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	// letters is how many datagrams one call takes. Each answer is one, and most exchanges have no more.
	letters = 4
	// letterSize bounds a datagram: the kernel makes the parts of a dump no larger, and a link fills 1,600 bytes.
	letterSize = 8 << 10
)

// inbox takes several datagrams with one system call (recvmmsg), which x/sys does not have.
type inbox struct {
	buf   []byte
	parts [letters][]byte
	iov   [letters]unix.Iovec
	hdr   [letters]mmsghdr
}

// mmsghdr is the kernel's struct of that name.
type mmsghdr struct {
	hdr unix.Msghdr
	n   uint32
}

// read takes what is there, at least one datagram or an error; it never waits, so the Go scheduler need not hear of it. A
// datagram that is too long is cut, and whoever splits it will miss its end.
func (in *inbox) read(fd int) ([][]byte, error) {
	if in.buf == nil {
		in.buf = make([]byte, letters*letterSize)
		for i := range in.hdr {
			in.iov[i].Base = &in.buf[i*letterSize]
			in.iov[i].SetLen(letterSize)
			in.hdr[i].hdr.Iov = &in.iov[i]
			in.hdr[i].hdr.SetIovlen(1)
		}
	}
	n, _, errno := unix.RawSyscall6(unix.SYS_RECVMMSG, uintptr(fd), uintptr(unsafe.Pointer(&in.hdr[0])), letters, unix.MSG_DONTWAIT, 0, 0)
	if errno != 0 {
		return nil, errno
	}
	for i := range in.parts[:n] {
		in.parts[i] = in.buf[i*letterSize:][:min(in.hdr[i].n, letterSize)]
	}
	return in.parts[:n], nil
}
