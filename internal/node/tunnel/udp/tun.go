// SPDX-License-Identifier: Apache-2.0

package udp

import (
	"encoding/binary"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/node/tunnel/tun"
)

const (
	// Offloads of a TUN device (linux/if_tun.h); x/sys does not define them.
	offloadCsum = 0x01
	offloadTSO4 = 0x02
	offloadTSO6 = 0x04
	offloadUSO4 = 0x20
	offloadUSO6 = 0x40
)

// vnet is the header before each packet of the device (struct virtio_net_hdr).
type vnet struct {
	flags, gso                              byte
	headLen, gsoSize, csumStart, csumOffset uint16
}

const (
	vnetLen = tun.HeaderLen
	// Flags and kinds.
	needsCsum = 1
	gsoNone   = 0
	gsoTCP4   = 1
	gsoTCP6   = 4
	gsoUDP    = 5
	gsoECN    = 0x80
)

func (h *vnet) read(b []byte) {
	h.flags, h.gso = b[0], b[1]
	h.headLen = binary.NativeEndian.Uint16(b[2:])
	h.gsoSize = binary.NativeEndian.Uint16(b[4:])
	h.csumStart = binary.NativeEndian.Uint16(b[6:])
	h.csumOffset = binary.NativeEndian.Uint16(b[8:])
}

func (h *vnet) write(b []byte) {
	b[0], b[1] = h.flags, h.gso
	binary.NativeEndian.PutUint16(b[2:], h.headLen)
	binary.NativeEndian.PutUint16(b[4:], h.gsoSize)
	binary.NativeEndian.PutUint16(b[6:], h.csumStart)
	binary.NativeEndian.PutUint16(b[8:], h.csumOffset)
}

// device is an attached TUN device.
type device struct {
	fd int
	// joinsUDP reports that the kernel supports large UDP packets.
	joinsUDP bool
}

// attach opens the device's queue in the calling thread's namespace.
func attach(link string) (d device, err error) {
	if d.fd, err = tun.Attach(link); err != nil {
		return d, err
	}
	if err = d.offload(link); err != nil {
		_ = unix.Close(d.fd)
	}
	return d, err
}

// offload enables large packets and offloaded checksums.
func (d *device) offload(link string) error {
	const basic = offloadCsum | offloadTSO4 | offloadTSO6
	if unix.IoctlSetInt(d.fd, unix.TUNSETOFFLOAD, basic|offloadUSO4|offloadUSO6) == nil { // since Linux 6.2
		d.joinsUDP = true
		return nil
	}
	if err := unix.IoctlSetInt(d.fd, unix.TUNSETOFFLOAD, basic); err != nil {
		return fmt.Errorf("link %s: offloads: %w", link, err)
	}
	return nil
}

// read reads one packet without blocking.
func (d *device) read(b []byte) (int, unix.Errno) {
	n, _, errno := unix.RawSyscall(unix.SYS_READ, uintptr(d.fd), uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)))
	return int(n), errno
}

// write writes one packet from its pieces. It never blocks.
func (d *device) write(pieces []unix.Iovec) unix.Errno {
	_, _, errno := unix.RawSyscall(unix.SYS_WRITEV, uintptr(d.fd), uintptr(unsafe.Pointer(&pieces[0])),
		uintptr(len(pieces)))
	return errno
}

// gone reports whether an error means that the device was deleted.
func gone(errno unix.Errno) bool {
	return errno == unix.EBADFD || errno == unix.EFAULT || errno == unix.ENODEV || errno == unix.EBADF
}
