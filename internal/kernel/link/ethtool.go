// SPDX-License-Identifier: Apache-2.0

package link

import (
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// TxChecksum reports whether a link's device computes the checksums of sent packets. It works in the calling thread's
// namespace, as SetTxChecksum does.
func TxChecksum(name string) (bool, error) {
	v, err := ethtool(name, unix.ETHTOOL_GTXCSUM, 0)
	if err != nil {
		return false, fmt.Errorf("link %s: read tx-checksumming: %w", name, err)
	}
	return v != 0, nil
}

// SetTxChecksum sets whether a link's device computes checksums, or the kernel.
func SetTxChecksum(name string, on bool) error {
	if _, err := ethtool(name, unix.ETHTOOL_STXCSUM, uint32(bit(on))); err != nil {
		return fmt.Errorf("link %s: set tx-checksumming %t: %w", name, on, err)
	}
	return nil
}

// ethtool performs one command that has one number (struct ethtool_value, referenced by a struct ifreq).
func ethtool(name string, command, data uint32) (uint32, error) {
	if len(name) >= unix.IFNAMSIZ {
		return 0, unix.EINVAL
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	defer func() { _ = unix.Close(fd) }()
	value := &struct{ command, data uint32 }{command, data}
	var request struct {
		name [unix.IFNAMSIZ]byte
		data unsafe.Pointer
		_    [16]byte // the rest of a struct ifreq
	}
	copy(request.name[:], name)
	request.data = unsafe.Pointer(value)
	var pin runtime.Pinner
	pin.Pin(value)
	defer pin.Unpin()
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCETHTOOL,
		uintptr(unsafe.Pointer(&request))); errno != 0 {
		return 0, errno
	}
	return value.data, nil
}
