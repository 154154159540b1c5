// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"

	"golang.org/x/sys/unix"
)

// Types of ICMP messages (RFC 792, RFC 4443), and the size of an echo request's header.
const (
	echoRequest4, echoReply4 = 8, 0
	echoRequest6, echoReply6 = 128, 129
	echoHeader               = 8
)

func (p Probe) icmp(ctx context.Context) error {
	to, err := netip.ParseAddr(p.To)
	if err != nil {
		return err
	}
	return ping(ctx, to, 16, false)
}

// ping sends echo requests with a body of that many bytes until one is answered. With whole set they are not fragmented,
// whatever MTU of the path the kernel knows.
func ping(ctx context.Context, to netip.Addr, body int, whole bool) error {
	network, reply := "ip4:icmp", byte(echoReply4)
	if to.Is6() {
		network, reply = "ip6:ipv6-icmp", echoReply6
	}
	d := net.Dialer{Control: func(_, _ string, raw syscall.RawConn) error {
		if !whole {
			return nil
		}
		var err error
		if e := raw.Control(func(fd uintptr) {
			if to.Is6() {
				err = unix.SetsockoptInt(int(fd), unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER, unix.IPV6_PMTUDISC_PROBE)
			} else {
				err = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_PROBE)
			}
		}); e != nil {
			return e
		}
		return err
	}}
	c, err := d.DialContext(ctx, network, to.String())
	if err != nil {
		return fmt.Errorf("dial: %w", err)
	}
	defer func() { _ = c.Close() }()
	packets, ok := c.(*net.IPConn)
	if !ok {
		return fmt.Errorf("ICMP: %T is no raw socket", c)
	}
	request := echoRequest(to.Is6(), body)
	buf := make([]byte, 64<<10)
	return repeat(ctx, c, request, func() (bool, error) {
		n, _, err := packets.ReadFromIP(buf) // without the IP header, which Read would leave
		if err != nil {
			return false, err
		}
		m := buf[:n]
		return n >= echoHeader && m[0] == reply && bytes.Equal(m[echoHeader:], request[echoHeader:]), nil
	})
}

// echoRequest returns an echo request. A raw socket gets all replies of its namespace: the random body distinguishes them.
func echoRequest(six bool, body int) []byte {
	m := make([]byte, echoHeader+body)
	_, _ = rand.Read(m[echoHeader:]) // never fails (crypto/rand)
	_, _ = rand.Read(m[4:6])         // the identifier
	m[7] = 1                         // the sequence number
	if six {
		m[0] = echoRequest6 // the kernel fills in the checksum
		return m
	}
	m[0] = echoRequest4
	binary.BigEndian.PutUint16(m[2:4], ^fold(sum(m)))
	return m
}

// sum adds up the bytes as the Internet checksum does (RFC 1071).
func sum(b []byte) (out uint32) {
	for i := 0; i < len(b); i += 2 {
		if i+1 == len(b) {
			return out + uint32(b[i])<<8
		}
		out += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	return out
}

func fold(sum uint32) uint16 {
	for sum>>16 != 0 {
		sum = sum&0xffff + sum>>16
	}
	return uint16(sum)
}

// mtu pings with packets one byte smaller than the MTU to the destination, of its size, and one byte larger.
func (p Probe) mtu(ctx context.Context, r *Result) error {
	to, err := netip.ParseAddr(p.To)
	if err != nil {
		return err
	}
	mtu, err := mtuTo(to)
	if err != nil {
		return err
	}
	r.MTU = mtu
	header := 20 + echoHeader
	if to.Is6() {
		header = 40 + echoHeader
	}
	for _, size := range []int{mtu - 1, mtu} {
		if err := ping(ctx, to, size-header, true); err != nil {
			return fmt.Errorf("%d bytes with an MTU of %d: %w", size, mtu, err)
		}
	}
	err = ping(ctx, to, mtu+1-header, true)
	if !errors.Is(err, unix.EMSGSIZE) {
		return fmt.Errorf("%d bytes with an MTU of %d were sent: %v", mtu+1, mtu, err) //nolint:errorlint // not its state
	}
	return nil
}

// mtuTo returns the MTU of the interface to a destination.
func mtuTo(to netip.Addr) (mtu int, err error) {
	c, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(to, 9)))
	if err != nil {
		return 0, fmt.Errorf("route: %w", err)
	}
	defer func() { _ = c.Close() }()
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, err
	}
	if e := raw.Control(func(fd uintptr) {
		if to.Is6() {
			mtu, err = unix.GetsockoptInt(int(fd), unix.IPPROTO_IPV6, unix.IPV6_MTU)
		} else {
			mtu, err = unix.GetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_MTU)
		}
	}); e != nil {
		return 0, e
	}
	if err != nil {
		return 0, fmt.Errorf("MTU: %w", err)
	}
	return mtu, nil
}
