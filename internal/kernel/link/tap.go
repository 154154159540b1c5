// SPDX-License-Identifier: Apache-2.0

package link

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/kernel/netlink"
	"github.com/weft-net/weft/internal/state"
)

// tunDevice creates tap devices: no message of rtnetlink does.
const tunDevice = "/dev/net/tun"

// TapReady returns why no tap device can be made.
func TapReady() error {
	fd, err := unix.Open(tunDevice, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("%s: %w", tunDevice, err)
	}
	return unix.Close(fd)
}

// MakeTap makes a persistent tap or tun device in the namespace of the calling thread. It sets the MAC before making
// the device persistent, so that one left by a killed process is recognized by its MAC.
func MakeTap(l state.Link) error {
	var a state.TunAttrs
	if l.Tun != nil {
		a = *l.Tun
	}
	if a.SELinux != "" && seLinux() {
		return makeTapAs(l, a)
	}
	fd, err := unix.Open(tunDevice, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("create %s: %s: %w", l, tunDevice, err)
	}
	defer func() { _ = unix.Close(fd) }()
	if err := setTap(fd, l, a); err != nil {
		return fmt.Errorf("create %s: %w", l, err)
	}
	return nil
}

func setTap(fd int, l state.Link, a state.TunAttrs) error {
	ifr, err := unix.NewIfreq(l.Name)
	if err != nil {
		return err
	}
	flags := uint16(unix.IFF_TAP | unix.IFF_NO_PI | unix.IFF_TUN_EXCL)
	if a.IP {
		flags = unix.IFF_TUN | unix.IFF_NO_PI | unix.IFF_TUN_EXCL
	}
	if a.MultiQueue {
		flags |= unix.IFF_MULTI_QUEUE
	}
	ifr.SetUint16(flags)
	err = unix.IoctlIfreq(fd, unix.TUNSETIFF, ifr)
	if errors.Is(err, unix.EBUSY) { // the kernel's error for a name that is in use
		err = unix.EEXIST
	}
	if err != nil {
		return err
	}
	if !l.MAC.IsZero() {
		if err := tapMAC(fd, l); err != nil {
			return err
		}
	}
	if a.Owner != nil {
		if err := unix.IoctlSetInt(fd, unix.TUNSETOWNER, int(*a.Owner)); err != nil {
			return fmt.Errorf("owner %d: %w", *a.Owner, err)
		}
	}
	if a.Group != nil {
		if err := unix.IoctlSetInt(fd, unix.TUNSETGROUP, int(*a.Group)); err != nil {
			return fmt.Errorf("group %d: %w", *a.Group, err)
		}
	}
	return unix.IoctlSetInt(fd, unix.TUNSETPERSIST, 1)
}

// tapMAC sets the device's MAC address: struct ifreq with a sockaddr after the name, which x/sys does not have.
func tapMAC(fd int, l state.Link) error {
	var ifr [unix.IFNAMSIZ + 24]byte
	copy(ifr[:unix.IFNAMSIZ-1], l.Name)
	binary.NativeEndian.PutUint16(ifr[unix.IFNAMSIZ:], unix.ARPHRD_ETHER)
	copy(ifr[unix.IFNAMSIZ+2:], l.MAC[:])
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCSIFHWADDR,
		uintptr(unsafe.Pointer(&ifr))); errno != 0 {
		return fmt.Errorf("mac %s: %w", l.MAC, errno)
	}
	return nil
}

// seLinux reports whether SELinux is enabled.
func seLinux() bool {
	_, err := os.Stat("/sys/fs/selinux/enforce")
	return err == nil
}

func decodeTun(data []byte) *state.TunAttrs {
	a := &state.TunAttrs{}
	for kind, data := range netlink.Attrs(data) {
		switch kind {
		case unix.IFLA_TUN_TYPE:
			a.IP = len(data) > 0 && data[0] == unix.IFF_TUN
		case unix.IFLA_TUN_OWNER:
			n := number(data)
			a.Owner = &n
		case unix.IFLA_TUN_GROUP:
			n := number(data)
			a.Group = &n
		case unix.IFLA_TUN_MULTI_QUEUE:
			a.MultiQueue = *isOn(data)
		}
	}
	return a
}
