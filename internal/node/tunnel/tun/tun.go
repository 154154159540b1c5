// SPDX-License-Identifier: Apache-2.0

// Package tun attaches to existing TUN devices: the reconciler creates them, so that addresses and routes remain while
// no process runs the tunnel, and no packet takes another route.
package tun

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// ErrMissing reports that the device does not exist (any more).
var ErrMissing = errors.New("tun device is missing")

// HeaderLen is the length in bytes of the header before each packet (struct virtio_net_hdr).
const HeaderLen = 10

const path = "/dev/net/tun"

// Attach opens a queue of the persistent device in the calling thread's namespace. The descriptor is non-blocking; each
// packet is preceded by a header.
func Attach(link string) (fd int, err error) {
	fd, err = unix.Open(path, unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("%s: %w", path, err)
	}
	if err := attach(fd, link); err != nil {
		_ = unix.Close(fd)
		return -1, fmt.Errorf("link %s: %w", link, err)
	}
	return fd, nil
}

func attach(fd int, link string) error {
	ifr, err := unix.NewIfreq(link)
	if err != nil {
		return err
	}
	ifr.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI | unix.IFF_VNET_HDR)
	if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, ifr); err != nil {
		return err
	}
	// If there was no device, one was just created that ends with the descriptor.
	if err := unix.IoctlIfreq(fd, unix.TUNGETIFF, ifr); err != nil {
		return err
	}
	if ifr.Uint16()&unix.IFF_PERSIST == 0 {
		return ErrMissing
	}
	return unix.IoctlSetPointerInt(fd, unix.TUNSETVNETHDRSZ, HeaderLen) // another program may have set another size
}
