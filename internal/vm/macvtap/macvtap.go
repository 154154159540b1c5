// SPDX-License-Identifier: Apache-2.0

// Package macvtap finds and opens the character device of a macvtap, through which a hypervisor sends and receives.
package macvtap

import (
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Device is the character device of a macvtap.
type Device struct {
	// Name is its name in /dev, Number its device number.
	Name   string
	Number uint64
}

// Find finds the device of a link in the network namespace of this thread; ok is false if the link is not a macvtap.
func Find(link string) (d Device, ok bool) {
	i, err := net.InterfaceByName(link)
	if err != nil {
		return d, false
	}
	d.Name = "tap" + strconv.Itoa(i.Index)
	b, err := sysfs("class/net/" + link + "/" + d.Name + "/dev")
	if err != nil {
		return d, false
	}
	major, minor, _ := strings.Cut(strings.TrimSpace(string(b)), ":")
	a, err1 := strconv.ParseUint(major, 10, 32)
	z, err2 := strconv.ParseUint(minor, 10, 32)
	d.Number = unix.Mkdev(uint32(a), uint32(z))
	return d, err1 == nil && err2 == nil
}

// sysfs reads a file of the sysfs of this thread's network namespace: the one at /sys belongs to the namespace that
// mounted it.
func sysfs(path string) ([]byte, error) {
	mount, err := detached("sysfs", unix.MOUNT_ATTR_RDONLY)
	if err != nil {
		return nil, err
	}
	defer func() { _ = unix.Close(mount) }()
	fd, err := unix.Openat(mount, path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = unix.Close(fd) }()
	b := make([]byte, 64)
	n, err := unix.Read(fd, b)
	return b[:max(n, 0)], err
}

// Open opens the device, in the namespace of its link. It creates a temporary device node: /dev/tapN may belong to a
// link of another namespace, and the usual directories for files are often mounted nodev.
func (d Device) Open() (*os.File, error) {
	mount, err := detached("tmpfs", 0)
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

// detached mounts a file system at no path: it is unmounted when its last file is closed.
func detached(kind string, attributes int) (int, error) {
	fs, err := unix.Fsopen(kind, unix.FSOPEN_CLOEXEC)
	if err != nil {
		return -1, err
	}
	defer func() { _ = unix.Close(fs) }()
	if err := unix.FsconfigCreate(fs); err != nil {
		return -1, err
	}
	return unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, attributes)
}
