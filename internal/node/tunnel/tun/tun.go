// SPDX-License-Identifier: Apache-2.0

// Package tun attaches to TUN devices that somebody else has made: the reconciler does, so that addresses and routes
// stay while no program carries packets, and nothing leaks to where it does not belong.
package tun

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// ErrMissing tells that the device is not there (any more).
var ErrMissing = errors.New("tun device is missing")

// HeaderLen is the length of the header before each packet (struct virtio_net_hdr).
const HeaderLen = 10

const path = "/dev/net/tun"

// Attach opens a queue of the persistent device of that name in the calling thread's namespace. The descriptor does not
// block; each packet has a header before it.
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
	// Where there was none, one was just made that goes with the descriptor.
	if err := unix.IoctlIfreq(fd, unix.TUNGETIFF, ifr); err != nil {
		return err
	}
	if ifr.Uint16()&unix.IFF_PERSIST == 0 {
		return ErrMissing
	}
	return unix.IoctlSetPointerInt(fd, unix.TUNSETVNETHDRSZ, HeaderLen) // another reader may have set another one
}
