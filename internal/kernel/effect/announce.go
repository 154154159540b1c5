// SPDX-License-Identifier: Apache-2.0

package effect

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/state"
)

// SendGratuitousARP announces addresses to the network: by a gratuitous ARP request (GARP; RFC 5944, 4.6) for IPv4, an
// unsolicited neighbor advertisement (RFC 4861, 7.2.6) for IPv6. One socket serves all the effects, and is closed in
// the background: closing a packet socket takes the kernel ten milliseconds, four times as long as the rest of an ADD.
func SendGratuitousARP(ns *netns.NS, effects []state.Effect) error {
	return ns.Do(func() error {
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return fmt.Errorf("announce: %w", err)
		}
		defer func() { go func() { _ = unix.Close(fd) }() }()
		for _, e := range effects {
			if err := sendGratuitousARP(fd, e.Link, e.Addrs); err != nil {
				return err
			}
		}
		return nil
	})
}

func sendGratuitousARP(fd int, name string, addrs []netip.Addr) error {
	index, mac, err := linkOf(fd, name)
	if err != nil {
		return fmt.Errorf("announce: link %s: %w", name, err)
	}
	for _, a := range addrs {
		frame := arp(mac, a)
		if a.Is6() {
			frame = advertisement(mac, a)
		}
		if err := unix.Sendto(fd, frame, 0, &unix.SockaddrLinklayer{Ifindex: index, Halen: 6}); err != nil {
			return fmt.Errorf("announce %s: %w", a, err)
		}
	}
	return nil
}

// Link returns the index and the MAC address of a link of the calling thread's namespace.
func Link(name string) (index int, mac net.HardwareAddr, err error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, nil, err
	}
	defer func() { _ = unix.Close(fd) }()
	return linkOf(fd, name)
}

// linkOf returns one link's index and MAC address. The net package would read all links for it.
func linkOf(fd int, name string) (index int, mac net.HardwareAddr, err error) {
	request, err := unix.NewIfreq(name)
	if err != nil {
		return 0, nil, err
	}
	if err := unix.IoctlIfreq(fd, unix.SIOCGIFINDEX, request); err != nil {
		return 0, nil, err
	}
	index = int(int32(request.Uint32()))
	var answer struct {
		_      [unix.IFNAMSIZ]byte
		family uint16
		mac    [6]byte
		_      [16]byte // the rest of a struct ifreq
	}
	copy((*[unix.IFNAMSIZ]byte)(unsafe.Pointer(&answer))[:], name)
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCGIFHWADDR,
		uintptr(unsafe.Pointer(&answer))); errno != 0 {
		return 0, nil, errno
	}
	return index, answer.mac[:], nil
}

// ARPReply returns the frame that answers an ARP request.
func ARPReply(mac, toMAC net.HardwareAddr, a, to netip.Addr) []byte {
	f := append(append([]byte{}, toMAC...), mac...)
	f = append(f, 0x08, 0x06, 0, 1, 0x08, 0, 6, 4, 0, 2)
	f = append(append(f, mac...), a.AsSlice()...)
	return append(append(f, toMAC...), to.AsSlice()...)
}

func arp(mac net.HardwareAddr, a netip.Addr) []byte {
	f := append([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, mac...)
	f = append(f, 0x08, 0x06, 0, 1, 0x08, 0, 6, 4, 0, 1)
	f = append(append(f, mac...), a.AsSlice()...)
	f = append(f, 0, 0, 0, 0, 0, 0)
	return append(f, a.AsSlice()...)
}

func advertisement(mac net.HardwareAddr, a netip.Addr) []byte {
	return Advertisement(mac, net.HardwareAddr{0x33, 0x33, 0, 0, 0, 1}, a, netip.IPv6LinkLocalAllNodes(), false)
}

// Advertisement returns the frame of a neighbor advertisement for the address a, solicited by the one that it is sent to or
// not.
func Advertisement(mac, toMAC net.HardwareAddr, a, to netip.Addr, solicited bool) []byte {
	flags := byte(0x20) // override
	if solicited {
		flags |= 0x40
	}
	icmp := append([]byte{136, 0, 0, 0, flags, 0, 0, 0}, a.AsSlice()...)
	icmp = append(append(icmp, 2, 1), mac...)
	binary.BigEndian.PutUint16(icmp[2:], checksum(a, to, icmp))
	f := append(append([]byte{}, toMAC...), mac...)
	f = append(f, 0x86, 0xdd, 0x60, 0, 0, 0, 0, byte(len(icmp)), unix.IPPROTO_ICMPV6, 255)
	f = append(append(f, a.AsSlice()...), to.AsSlice()...)
	return append(f, icmp...)
}

func checksum(src, dst netip.Addr, icmp []byte) uint16 {
	pseudo := append(append([]byte{}, src.AsSlice()...), dst.AsSlice()...)
	pseudo = append(pseudo, 0, 0, 0, byte(len(icmp)), 0, 0, 0, unix.IPPROTO_ICMPV6)
	sum := uint32(0)
	for _, part := range [][]byte{pseudo, icmp} {
		for i := 0; i+1 < len(part); i += 2 {
			sum += uint32(binary.BigEndian.Uint16(part[i:]))
		}
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}
