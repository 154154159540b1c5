// SPDX-License-Identifier: Apache-2.0

package effect

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/state"
)

// ErrOtherDevice is wrapped when /dev/tapN belongs to a macvtap of another namespace, whose link has the same index.
var ErrOtherDevice = errors.New("the file belongs to a macvtap of another namespace")

// ownDevice makes the file of a macvtap the property of a user. The kernel creates and deletes the file in its one
// devtmpfs, which is mounted here at no path: the agent's container has a /dev of its own. Names in it are indexes of
// links, which are unique in a namespace only, so the file is compared with the link's device.
func ownDevice(ns *netns.NS, e state.Effect) error {
	var name string
	var device uint64
	err := ns.Do(func() (err error) {
		name, device, err = MacvtapDevice(e.Link)
		return err
	})
	if err != nil {
		return err
	}
	files, err := Detached("devtmpfs", 0)
	if err != nil {
		return fmt.Errorf("mount devtmpfs: %w", err)
	}
	defer func() { _ = unix.Close(files) }()
	var found unix.Stat_t
	if err := unix.Fstatat(files, name, &found, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return fmt.Errorf("/dev/%s: %w", name, err)
	}
	if found.Mode&unix.S_IFMT != unix.S_IFCHR || found.Rdev != device {
		return fmt.Errorf("/dev/%s: %w", name, ErrOtherDevice)
	}
	if err := unix.Fchownat(files, name, int(e.Owner), int(e.Group), unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return fmt.Errorf("/dev/%s: change the owner to %d:%d: %w", name, e.Owner, e.Group, err)
	}
	return nil
}

// MacvtapDevice returns the name in /dev and the number of the device of a macvtap in the network namespace of this
// thread; an error if the link is not a macvtap. The sysfs at /sys belongs to the namespace that mounted it.
func MacvtapDevice(link string) (name string, device uint64, err error) {
	i, err := net.InterfaceByName(link)
	if err != nil {
		return "", 0, fmt.Errorf("link %s: %w", link, err)
	}
	name = "tap" + strconv.Itoa(i.Index)
	sys, err := Detached("sysfs", unix.MOUNT_ATTR_RDONLY)
	if err != nil {
		return "", 0, fmt.Errorf("mount sysfs: %w", err)
	}
	defer func() { _ = unix.Close(sys) }()
	file, err := unix.Openat(sys, "class/net/"+link+"/"+name+"/dev", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", 0, fmt.Errorf("device of macvtap %s: %w", link, err)
	}
	defer func() { _ = unix.Close(file) }()
	b := make([]byte, 64)
	n, err := unix.Read(file, b)
	if err != nil {
		return "", 0, fmt.Errorf("device of macvtap %s: %w", link, err)
	}
	major, minor, _ := strings.Cut(strings.TrimSpace(string(b[:n])), ":")
	high, errHigh := strconv.ParseUint(major, 10, 32)
	low, errLow := strconv.ParseUint(minor, 10, 32)
	if err := errors.Join(errHigh, errLow); err != nil {
		return "", 0, fmt.Errorf("device of macvtap %s: number %q: %w", link, b[:n], err)
	}
	return name, unix.Mkdev(uint32(high), uint32(low)), nil
}

// Detached mounts a file system at no path: it is unmounted when its last file is closed.
func Detached(kind string, attributes int) (int, error) {
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
