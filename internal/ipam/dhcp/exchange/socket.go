// SPDX-License-Identifier: Apache-2.0

package exchange

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/netns"
)

// socket is a socket in a container's namespace, with a read that can be canceled.
type socket struct {
	fd   int
	file *os.File // owns fd
}

func newSocket(fd int) *socket { return &socket{fd: fd, file: os.NewFile(uintptr(fd), "dhcp")} }

// Close closes the socket.
func (s *socket) Close() error { return s.file.Close() }

// listen passes each packet that arrives within a time to take, and ends when take returns true. The time is a
// duration: the clock of the leases, which operators and tests change, does not control when a socket wakes up.
func (s *socket) listen(
	ctx context.Context, wait time.Duration, take func(packet []byte) bool,
) (found bool, err error) {
	if err := s.file.SetReadDeadline(time.Time{}); err != nil {
		return false, err
	}
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	woken := make(chan struct{})
	stop := context.AfterFunc(ctx, func() { defer close(woken); _ = s.file.SetReadDeadline(time.Unix(1, 0)) })
	defer func() {
		if !stop() {
			<-woken // or it would end the next listen
		}
	}()
	buf := make([]byte, 1<<16)
	for ctx.Err() == nil {
		n, err := s.file.Read(buf)
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			return false, nil
		case errors.Is(err, unix.ENETDOWN): // the link went down; it may come up again
			select {
			case <-ctx.Done():
			case <-time.After(carrierStep):
			}
		case err != nil:
			return false, err
		case take(buf[:n]):
			return true, nil
		}
	}
	return false, nil
}

// openPackets opens a socket for whole frames of a link. It receives only IPv4 UDP packets to the client's port.
func openPackets(ns *netns.NS, l Link) (*socket, error) {
	fd := -1
	err := ns.Do(func() (err error) {
		fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
		return err
	})
	if err == nil {
		filter := answers4()
		err = unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER,
			&unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]})
	}
	if err == nil { // no packets are received before this
		err = unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: 0x0008, Ifindex: l.Index}) // ETH_P_IP, big endian
	}
	if err != nil {
		if fd >= 0 {
			_ = unix.Close(fd)
		}
		return nil, fmt.Errorf("packet socket on %s: %w", l.Name, err)
	}
	return newSocket(fd), nil
}

// answers4 is a filter that accepts whole UDP packets to port 68.
func answers4() []unix.SockFilter {
	const drop = 9 // the line of the last "return"
	at := func(line, code int, k uint32, yes, no int) unix.SockFilter {
		f := unix.SockFilter{Code: uint16(code), K: k}
		if yes > 0 || no > 0 {
			f.Jt, f.Jf = uint8(max(yes-line-1, 0)), uint8(max(no-line-1, 0))
		}
		return f
	}
	return []unix.SockFilter{
		at(0, unix.BPF_LD|unix.BPF_B|unix.BPF_ABS, etherLen+9, 0, 0),
		at(1, unix.BPF_JMP|unix.BPF_JEQ|unix.BPF_K, 17, 2, drop),
		at(2, unix.BPF_LD|unix.BPF_H|unix.BPF_ABS, etherLen+6, 0, 0),
		at(3, unix.BPF_JMP|unix.BPF_JSET|unix.BPF_K, 0x3fff, drop, 4),
		at(4, unix.BPF_LDX|unix.BPF_B|unix.BPF_MSH, etherLen, 0, 0),
		at(5, unix.BPF_LD|unix.BPF_H|unix.BPF_IND, etherLen+2, 0, 0),
		at(6, unix.BPF_JMP|unix.BPF_JEQ|unix.BPF_K, clientPort4, 8, drop),
		at(7, unix.BPF_RET|unix.BPF_K, 0, 0, 0),
		at(8, unix.BPF_RET|unix.BPF_K, 1<<16, 0, 0),
		at(9, unix.BPF_RET|unix.BPF_K, 0, 0, 0),
	}
}

// openUDP6 opens a socket for DHCPv6 on a link's address.
func openUDP6(ns *netns.NS, l Link, from netip.Addr) (*socket, error) {
	fd := -1
	err := ns.Do(func() (err error) {
		fd, err = unix.Socket(unix.AF_INET6, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
		return err
	})
	if err == nil {
		err = errors.Join(
			unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1),
			unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 1),
			unix.Bind(fd, &unix.SockaddrInet6{Port: clientPort6, ZoneId: uint32(l.Index), Addr: from.As16()}))
	}
	if err != nil {
		if fd >= 0 {
			_ = unix.Close(fd)
		}
		return nil, fmt.Errorf("socket of %s on %s: %w", from, l.Name, err)
	}
	return newSocket(fd), nil
}
