// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

const (
	spoofed     = 3                      // datagrams that are sent
	spoofPause  = 20 * time.Millisecond  // between them
	spoofSettle = 500 * time.Millisecond // for their way
)

// spoof sends datagrams with source From, and asks the server how many have arrived: from its own address, which is
// allowed to ask. It is Silent if none has.
func (p Probe) spoof(ctx context.Context) error {
	to, err := netip.ParseAddrPort(p.To)
	if err != nil {
		return err
	}
	from, err := netip.ParseAddr(p.From)
	if err != nil {
		return err
	}
	cookie := newCookie()
	body := make([]byte, headerSize)
	copy(body, wordSpoof+" "+cookie)
	packet := datagram(netip.AddrPortFrom(from, 40000), to, body)
	for range spoofed {
		if err := sendRaw(packet, to.Addr()); err != nil && !errors.Is(err, unix.EPERM) {
			return fmt.Errorf("send from %s: %w", from, err)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("probe: %w", ctx.Err())
		case <-time.After(spoofPause):
		}
	}
	select {
	case <-ctx.Done():
		return fmt.Errorf("probe: %v", ctx.Err()) //nolint:errorlint // the server was not asked: this is not silence
	case <-time.After(spoofSettle):
	}
	line, err := p.request(ctx, wordSeen+" "+cookie)
	if err != nil {
		return fmt.Errorf("number of datagrams that arrived: %v", err) //nolint:errorlint // as above
	}
	n, err := strconv.Atoi(line)
	if err != nil {
		return fmt.Errorf("number of datagrams that arrived: %w", err)
	}
	if n == 0 {
		return fmt.Errorf("%w: none of %d datagrams from %s arrived", errNone, spoofed, from)
	}
	return nil
}

// sendRaw sends a packet with its IP header.
func sendRaw(packet []byte, to netip.Addr) error {
	var family int
	var at unix.Sockaddr
	if to.Is6() {
		family, at = unix.AF_INET6, &unix.SockaddrInet6{Addr: to.As16()}
	} else {
		family, at = unix.AF_INET, &unix.SockaddrInet4{Addr: to.As4()}
	}
	fd, err := unix.Socket(family, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	return unix.Sendto(fd, packet, 0, at)
}

// datagram returns a UDP datagram with its IP header (RFC 768, RFC 791, RFC 8200).
func datagram(from, to netip.AddrPort, body []byte) []byte {
	const udpHeader, hops, udp = 8, 64, 17
	length := udpHeader + len(body)
	u := make([]byte, udpHeader, length)
	binary.BigEndian.PutUint16(u[0:], from.Port())
	binary.BigEndian.PutUint16(u[2:], to.Port())
	binary.BigEndian.PutUint16(u[4:], uint16(length))
	u = append(u, body...)
	src, dst := from.Addr().AsSlice(), to.Addr().AsSlice()
	check := ^fold(sum(src) + sum(dst) + udp + uint32(length) + sum(u))
	if check == 0 {
		check = 0xffff
	}
	binary.BigEndian.PutUint16(u[6:], check)
	if to.Addr().Is6() {
		h := make([]byte, 8, 40)
		h[0] = 6 << 4
		binary.BigEndian.PutUint16(h[4:], uint16(length))
		h[6], h[7] = udp, hops
		return append(append(append(h, src...), dst...), u...)
	}
	h := make([]byte, 12, 20)
	h[0] = 4<<4 | 5
	binary.BigEndian.PutUint16(h[2:], uint16(20+length))
	h[8], h[9] = hops, udp // the kernel fills in the header's checksum and an identification (raw(7))
	return append(append(append(h, src...), dst...), u...)
}
