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

// sendPackets sends numbers and ignores errors. It sleeps in a system call: after a live migration of an emulated VM,
// the code of the Go runtime's timers would be translated again before the first packet.
func sendPackets(conn *net.UDPConn, every time.Duration) error {
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
