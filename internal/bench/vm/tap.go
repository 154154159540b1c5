// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"errors"
	"fmt"
	"net"
	"os"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/netns"
	device "github.com/weft-net/weft/internal/vm/macvtap"
)

// openTap opens a tap in a namespace as QEMU does, and creates it if it is missing.
func openTap(ns *netns.NS, name string) (*os.File, error) {
	return openDevice(ns, name, func() (*os.File, error) {
		fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC, 0)
		if err != nil {
			return nil, err
		}
		return os.NewFile(uintptr(fd), name), nil
	})
}

// openMacvtap opens the device of a macvtap.
func openMacvtap(ns *netns.NS, name string) (*os.File, error) {
	return openDevice(ns, name, func() (*os.File, error) {
		tap, ok := device.Find(name)
		if !ok {
			return nil, errors.New("not a macvtap")
		}
		return tap.Open()
	})
}

// openDevice opens a tap device and attaches it to the named tap, with checksum and segmentation offload.
func openDevice(ns *netns.NS, name string, open func() (*os.File, error)) (*os.File, error) {
	var out *os.File
	err := ns.Do(func() error {
		f, err := open()
		if err != nil {
			return err
		}
		fd := int(f.Fd())
		ifr, err := unix.NewIfreq(name)
		if err == nil {
			ifr.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI | unix.IFF_VNET_HDR)
			err = unix.IoctlIfreq(fd, unix.TUNSETIFF, ifr)
		}
		if err == nil {
			err = unix.IoctlSetInt(fd, unix.TUNSETOFFLOAD, unix.TUN_F_CSUM|unix.TUN_F_TSO4|unix.TUN_F_TSO6)
		}
		if err == nil {
			err = unix.SetNonblock(fd, false) // the NIC process blocks
		}
		if err != nil {
			_ = f.Close()
			return err
		}
		out = f
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("tap %s: %w", name, err)
	}
	return out, nil
}

// packetSocket opens a packet socket on a link; with sendOnly it receives no frames.
func packetSocket(ns *netns.NS, name string, sendOnly bool) (*os.File, error) {
	l, err := linkOf(ns, name)
	if err != nil {
		return nil, err
	}
	protocol := uint16(0x0300) // ETH_P_ALL in network byte order
	if sendOnly {
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

// linkOf returns a link.
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
		return nil, fmt.Errorf("MAC address of the VM: %w", err)
	}
	return m, nil
}
