// SPDX-License-Identifier: Apache-2.0

// Package macvtap finds and opens the character device of a macvtap, through which a hypervisor sends and receives.
package macvtap

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/kernel/effect"
)

// Device is the character device of a macvtap.
type Device struct {
	// Name is its name in /dev, Number its device number.
	Name   string
	Number uint64
}

// Find finds the device of a link in the network namespace of this thread; ok is false if the link is not a macvtap.
func Find(link string) (d Device, ok bool) {
	name, number, err := effect.MacvtapDevice(link)
	return Device{Name: name, Number: number}, err == nil
}

// Open opens the device, in the namespace of its link. It creates a temporary device node: /dev/tapN may belong to a
// link of another namespace, and the usual directories for files are often mounted nodev.
func (d Device) Open() (*os.File, error) {
	mount, err := effect.Detached("tmpfs", 0)
	if err != nil {
		return nil, fmt.Errorf("create a device node: %w", err)
	}
	defer func() { _ = unix.Close(mount) }()
	if err := unix.Mknodat(mount, d.Name, unix.S_IFCHR|0o600, int(d.Number)); err != nil {
		return nil, fmt.Errorf("create a device node: %w", err)
	}
	fd, err := unix.Openat(mount, d.Name, unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), d.Name), nil
}
