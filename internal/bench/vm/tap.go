// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/netns"
)

// tunDevice is where taps are opened.
const tunDevice = "/dev/net/tun"

// openTap opens a tap in a namespace as QEMU does, and makes it where it is not there: large segments and checksums are left
// to the other side.
func openTap(ns *netns.NS, name string) (*os.File, error) {
	var f *os.File
	err := ns.Do(func() (err error) {
		f, err = attach(tunDevice, name)
		return err
	})
	return f, err
}

// attach opens a device for taps and says which one is meant.
func attach(device, name string) (*os.File, error) {
	fd, err := unix.Open(device, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", device, err)
	}
	ifr, err := unix.NewIfreq(name)
	if err == nil {
		ifr.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI | unix.IFF_VNET_HDR)
		err = unix.IoctlIfreq(fd, unix.TUNSETIFF, ifr)
	}
	if err == nil {
		err = unix.IoctlSetInt(fd, unix.TUNSETOFFLOAD, unix.TUN_F_CSUM|unix.TUN_F_TSO4|unix.TUN_F_TSO6)
	}
	if err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("tap %s: %w", name, err)
	}
	return os.NewFile(uintptr(fd), name), nil
}

// openMacvtap opens the device of a macvtap, whose node it makes for that.
func openMacvtap(ns *netns.NS, name, dir string) (*os.File, error) {
	l, err := linkOf(ns, name)
	if err != nil {
		return nil, err
	}
	var f *os.File
	err = ns.Do(func() error {
		numbers, err := device(name, l.Attrs().Index)
		if err != nil {
			return err
		}
		node := filepath.Join(dir, "tap"+strconv.Itoa(l.Attrs().Index))
		if err := unix.Mknod(node, unix.S_IFCHR|0o600, int(numbers)); err != nil {
			return fmt.Errorf("%s: %w", node, err)
		}
		f, err = attach(node, name)
		return err
	})
	return f, err
}

// device is the number of a macvtap's character device. sysfs tells it of the namespace that it was mounted in; so a mount of
// the calling thread's own is needed.
func device(name string, index int) (uint64, error) {
	dir, err := os.MkdirTemp("", "weft-sys-")
	if err != nil {
		return 0, err
	}
	defer func() { _ = os.Remove(dir) }()
	if err := unix.Mount("sysfs", dir, "sysfs", unix.MS_RDONLY, ""); err != nil {
		return 0, fmt.Errorf("sysfs: %w", err)
	}
	defer func() { _ = unix.Unmount(dir, unix.MNT_DETACH) }()
	b, err := os.ReadFile(filepath.Join(dir, "class/net", name, "tap"+strconv.Itoa(index), "dev"))
	if err != nil {
		return 0, err
	}
	var major, minor uint32
	if _, err := fmt.Sscanf(strings.TrimSpace(string(b)), "%d:%d", &major, &minor); err != nil {
		return 0, fmt.Errorf("device of %s: %w", name, err)
	}
	return unix.Mkdev(major, minor), nil
}

// packetSocket sends and takes whole frames on a link; one that is deaf takes none.
func packetSocket(ns *netns.NS, name string, deaf bool) (*os.File, error) {
	l, err := linkOf(ns, name)
	if err != nil {
		return nil, err
	}
	protocol := uint16(0x0300) // ETH_P_ALL, turned
	if deaf {
		protocol = 0
	}
	fd := -1
	err = ns.Do(func() (err error) {
		fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
		if err == nil {
			err = unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: protocol, Ifindex: l.Attrs().Index})
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("packet socket on %s: %w", name, err)
	}
	_ = unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1)
	return os.NewFile(uintptr(fd), name), nil
}

// linkOf reads a link.
func linkOf(ns *netns.NS, name string) (l netlink.Link, err error) {
	err = ns.Do(func() error {
		l, err = netlink.LinkByName(name)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("link %s: %w", name, err)
	}
	return l, nil
}

func parseMAC(s string) (net.HardwareAddr, error) {
	m, err := net.ParseMAC(s)
	if err != nil {
		return nil, fmt.Errorf("address of the machine: %w", err)
	}
	return m, nil
}
