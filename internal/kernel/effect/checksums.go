// SPDX-License-Identifier: Apache-2.0

package effect

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/netns"
)

// Verdict is the result of a probe of checksums.
type Verdict int

// The verdicts.
const (
	// Unknown: there was no reply at all.
	Unknown Verdict = iota
	// ChecksumsOK: packets whose checksums the device computes arrive.
	ChecksumsOK
	// ChecksumsBroken: only packets whose checksums the kernel has computed arrive.
	ChecksumsBroken
)

// String returns the verdict as a word.
func (v Verdict) String() string { return [...]string{"unknown", "whole", "broken"}[v] }

// A port without a listener (the first of traceroute), the number of probes and the wait for each reply.
const (
	closedPort  = 33434
	probeTries  = 3
	probeAnswer = 250 * time.Millisecond
)

// Checksums determines, by sending packets, whether packets from ns to an address arrive with correct checksums. Some
// network cards compute wrong checksums for encapsulated packets, and the receiver drops such packets silently.
//
// It sends datagrams to a closed port. The device computes their checksum, as for most packets that the kernel sends; a
// correct one is answered with an ICMP error. Without a reply it sends the same datagram in two pieces, whose checksum
// the kernel computes itself. If only these are answered, the device's checksums are wrong.
func Checksums(ctx context.Context, ns *netns.NS, to netip.Addr) (Verdict, error) {
	left, computed := 0, 0
	for range probeTries {
		for _, pieces := range []int{1, 2} {
			refused, err := refuses(ctx, ns, to, pieces)
			switch {
			case err != nil:
				return Unknown, fmt.Errorf("probe of checksums to %s: %w", to, err)
			case refused && pieces == 1:
				left++
			case refused:
				computed++
			}
			if left > 0 {
				return ChecksumsOK, nil
			}
		}
		if computed == 0 {
			return Unknown, nil
		}
	}
	if computed < probeTries {
		return Unknown, nil // packets are lost for other reasons too
	}
	return ChecksumsBroken, nil
}

// refuses sends one datagram in so many pieces and reports whether it was answered with "port unreachable".
func refuses(ctx context.Context, ns *netns.NS, to netip.Addr, pieces int) (bool, error) {
	if err := ctx.Err(); err != nil {
		return false, err
	}
	fd, err := connected(ns, netip.AddrPortFrom(to, closedPort))
	if err != nil {
		return false, err
	}
	defer func() { _ = unix.Close(fd) }()
	for i := range pieces {
		flags := unix.MSG_NOSIGNAL
		if i < pieces-1 {
			flags |= unix.MSG_MORE
		}
		if err := unix.Sendto(fd, []byte("weft"), flags, nil); errors.Is(err, unix.ECONNREFUSED) {
			return true, nil
		} else if err != nil {
			return false, err
		}
	}
	for end := time.Now().Add(probeAnswer); ; {
		left := time.Until(end)
		if left <= 0 || ctx.Err() != nil {
			return false, ctx.Err()
		}
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd)}}, int(left.Milliseconds())+1)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return false, err
		}
		if n == 0 {
			continue
		}
		errno, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ERROR)
		return unix.Errno(errno) == unix.ECONNREFUSED, err
	}
}

// connected returns a connected datagram socket in ns.
func connected(ns *netns.NS, to netip.AddrPort) (fd int, err error) {
	family, addr := unix.AF_INET6, unix.Sockaddr(&unix.SockaddrInet6{Port: int(to.Port()), Addr: to.Addr().As16()})
	if to.Addr().Is4() {
		family, addr = unix.AF_INET, &unix.SockaddrInet4{Port: int(to.Port()), Addr: to.Addr().As4()}
	}
	err = ns.Do(func() (err error) {
		fd, err = unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
		return err
	})
	if err != nil {
		return -1, err
	}
	if err := unix.Connect(fd, addr); err != nil {
		_ = unix.Close(fd)
		return -1, err
	}
	return fd, nil
}
