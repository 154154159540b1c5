// SPDX-License-Identifier: Apache-2.0

// Package macvtap finds and opens the character device by which a hypervisor speaks through a macvtap.
package macvtap

import (
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Device is a macvtap's.
type Device struct {
	// Name is what it is called below /dev, Number what the kernel knows it by.
	Name   string
	Number uint64
}

// Find finds the device of a link, as the kernel of this thread's namespace has it; ok is false where the link is no
// macvtap.
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

// sysfs reads a file of the sysfs that belongs to this thread's namespace: what is mounted at /sys is the namespace's
// that mounted it.
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

// Open opens the device, in the namespace of its link. It has a node of its own, which goes with this call: /dev/tapN
// may be another namespace's of the same number, and where files are otherwise made devices may not be opened (nodev).
func (d Device) Open() (*os.File, error) {
	mount, err := detached("tmpfs", 0)
	if err != nil {
		return nil, fmt.Errorf("make a node for it: %w", err)
	}
	defer func() { _ = unix.Close(mount) }()
	if err := unix.Mknodat(mount, d.Name, unix.S_IFCHR|0o600, int(d.Number)); err != nil {
		return nil, fmt.Errorf("make a node for it: %w", err)
	}
	fd, err := unix.Openat(mount, d.Name, unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), d.Name), nil
}

// detached mounts a file system nowhere: it goes when what is opened of it is closed.
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
