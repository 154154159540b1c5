// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// The types of ICMPv6 messages of routers (RFC 4861, section 4).
const (
	routerSolicitation  = 133
	routerAdvertisement = 134
)

// hopLimit is that of all messages of neighbor discovery: it proves that no router has forwarded them.
const hopLimit = 255

func allNodes() netip.Addr   { return netip.IPv6LinkLocalAllNodes() }
func allRouters() netip.Addr { return netip.IPv6LinkLocalAllRouters() }

// socket sends and receives messages of routers on all links.
type socket struct {
	file   *os.File
	raw    syscall.RawConn
	closed chan struct{}
	once   sync.Once
}

// message is a valid message of a neighbor.
type message struct {
	kind  byte
	from  netip.Addr
	index int // of the link
}

func openSocket() (*socket, error) {
	fd, err := unix.Socket(unix.AF_INET6, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.IPPROTO_ICMPV6)
	if err != nil {
		return nil, fmt.Errorf("socket for router advertisements (weft-bgp needs the capability NET_RAW): %w", err)
	}
	var only unix.ICMPv6Filter // a bit for each type that is not received
	for i := range only.Data {
		only.Data[i] = ^uint32(0)
	}
	for _, kind := range []int{routerSolicitation, routerAdvertisement} {
		only.Data[kind>>5] &^= 1 << (kind & 31)
	}
	err = errors.Join(
		unix.SetsockoptICMPv6Filter(fd, unix.IPPROTO_ICMPV6, unix.ICMPV6_FILTER, &only),
		unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_MULTICAST_HOPS, hopLimit),
		unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_MULTICAST_LOOP, 0),
		unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_RECVHOPLIMIT, 1),
	)
	if err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("socket for router advertisements: %w", err)
	}
	s := &socket{file: os.NewFile(uintptr(fd), "icmpv6"), closed: make(chan struct{})}
	if s.raw, err = s.file.SyscallConn(); err != nil {
		s.close()
		return nil, fmt.Errorf("socket for router advertisements: %w", err)
	}
	return s, nil
}

func (s *socket) close() {
	s.once.Do(func() {
		close(s.closed)
		_ = s.file.Close()
	})
}

// inspect returns the index of a link, 0 if it does not exist, and whether packets may pass. It asks for the one link
// only: a node may have a thousand.
func (s *socket) inspect(name string) (index int, up bool, err error) {
	request, err := unix.NewIfreq(name)
	if err != nil {
		return 0, false, nil // the kernel has no such names
	}
	control := s.raw.Control(func(fd uintptr) {
		if err = unix.IoctlIfreq(int(fd), unix.SIOCGIFINDEX, request); err != nil {
			return
		}
		index = int(request.Uint32())
		if err = unix.IoctlIfreq(int(fd), unix.SIOCGIFFLAGS, request); err == nil {
			const both = unix.IFF_UP | unix.IFF_RUNNING
			up = request.Uint16()&both == both
		}
	})
	if errors.Is(err, unix.ENODEV) {
		return 0, false, control
	}
	return index, up, errors.Join(control, err)
}

// send sends a message on a link with its MAC, if it has one. The kernel computes the checksum.
func (s *socket) send(index int, mac net.HardwareAddr, kind byte, to netip.Addr, body []byte) error {
	const sourceMAC = 1 // the option with the sender's MAC, in units of 8 bytes
	b := append([]byte{kind, 0, 0, 0}, body...)
	if len(mac) == 6 {
		b = append(append(b, sourceMAC, 1), mac...)
	}
	group := &unix.IPv6Mreq{Multiaddr: allRouters().As16(), Interface: uint32(index)}
	var err error
	control := s.raw.Control(func(fd uintptr) {
		// Solicitations are sent to this group; a link may be another one of the same name, so it is joined each time.
		err = unix.SetsockoptIPv6Mreq(int(fd), unix.IPPROTO_IPV6, unix.IPV6_JOIN_GROUP, group)
		if err != nil && !errors.Is(err, unix.EADDRINUSE) {
			return
		}
		err = unix.Sendto(int(fd), b, 0, &unix.SockaddrInet6{Addr: to.As16(), ZoneId: uint32(index)})
	})
	return errors.Join(control, err)
}

// receive waits for a valid message. The error reports that the socket is closed.
func (s *socket) receive() (message, error) {
	data, control := make([]byte, 1500), make([]byte, unix.CmsgSpace(4))
	for {
		var n, oobn int
		var from unix.Sockaddr
		var err error
		wait := s.raw.Read(func(fd uintptr) bool {
			n, oobn, _, from, err = unix.Recvmsg(int(fd), data, control, 0)
			return !errors.Is(err, unix.EAGAIN)
		})
		if wait != nil {
			return message{}, wait
		}
		if err != nil { // ENETDOWN and the like are of one link
			continue
		}
		if m, ok := decode(data[:n], control[:oobn], from); ok {
			return m, nil
		}
	}
}

// decode returns false for a message that no neighbor has sent, or that is too short (RFC 4861, section 6.1).
func decode(data, control []byte, from unix.Sockaddr) (message, bool) {
	sender, ok := from.(*unix.SockaddrInet6)
	if !ok || len(data) < 8 || data[0] == routerAdvertisement && len(data) < 16 || data[1] != 0 {
		return message{}, false
	}
	messages, err := unix.ParseSocketControlMessage(control)
	if err != nil || len(messages) != 1 || len(messages[0].Data) < 4 ||
		binary.NativeEndian.Uint32(messages[0].Data) != hopLimit {
		return message{}, false
	}
	m := message{kind: data[0], from: netip.AddrFrom16(sender.Addr), index: int(sender.ZoneId)}
	return m, m.kind == routerSolicitation || m.from.IsLinkLocalUnicast()
}
