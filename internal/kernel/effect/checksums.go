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

// Verdict is what a probe of checksums found.
type Verdict int

// The verdicts.
const (
	// Unknown: nobody answered at all.
	Unknown Verdict = iota
	// Whole: packets whose checksums the device is to compute arrive as they should.
	Whole
	// Broken: only packets whose checksums the kernel has computed arrive.
	Broken
)

// String is the verdict in a word.
func (v Verdict) String() string { return [...]string{"unknown", "whole", "broken"}[v] }

// Of a probe: a port where nobody listens (the first of traceroute), how often it asks and how long it waits each time.
const (
	closedPort  = 33434
	probeTries  = 3
	probeAnswer = 250 * time.Millisecond
)

// Checksums finds out, by sending packets, whether what leaves ns for an address arrives with right checksums. Some
// network cards are wrong about packets inside of others, and whoever receives such a packet drops it in silence.
//
// It sends datagrams to a port where nobody listens. Their checksum is left to the device, which is how the kernel
// sends all that it can; a right one is answered with a refusal. When there is none it sends the same in two pieces, of
// which the kernel computes the checksum itself. If these are refused and the others never are, it is the checksum.
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
				return Whole, nil
			}
		}
		if computed == 0 {
			return Unknown, nil
		}
	}
	if computed < probeTries {
		return Unknown, nil // packets are lost here for other reasons too
	}
	return Broken, nil
}

// refuses sends one datagram in so many pieces and tells whether the other side refused it.
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

// connected is a datagram socket in ns that speaks with one other.
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
