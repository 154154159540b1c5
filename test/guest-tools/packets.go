// SPDX-License-Identifier: Apache-2.0

package main

import (
	"net"
	"runtime"
	"strconv"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// packets sends numbers, and does not mind who is not there. It sleeps in the kernel by itself: where a machine is
// emulated and has just come to another host, all that the runtime does for a timer would be translated anew before the
// first packet.
func packets(conn *net.UDPConn, every time.Duration) error {
	file, err := conn.File()
	if err != nil {
		return err
	}
	runtime.LockOSThread()
	pause := unix.NsecToTimespec(int64(every))
	text := make([]byte, 0, 32)
	for n := int64(0); ; n++ {
		text = append(strconv.AppendInt(text[:0], n, 10), '\n')
		_, _, _ = unix.RawSyscall6(unix.SYS_SENDTO, file.Fd(), uintptr(unsafe.Pointer(unsafe.SliceData(text))),
			uintptr(len(text)), unix.MSG_DONTWAIT, 0, 0)
		_, _, _ = unix.RawSyscall6(unix.SYS_CLOCK_NANOSLEEP, unix.CLOCK_MONOTONIC, 0,
			uintptr(unsafe.Pointer(&pause)), 0, 0, 0)
	}
}
