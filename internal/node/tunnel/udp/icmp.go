// SPDX-License-Identifier: Apache-2.0

package udp

import (
	"encoding/binary"
	"net/netip"
	"time"
)

// icmpError is the type and code of an error in ICMP and in ICMPv6.
type icmpError struct{ type4, code4, type6, code6 byte }

func noRoute() icmpError { return icmpError{3, 0, 1, 0} }
func expired() icmpError { return icmpError{11, 0, 3, 0} }

const (
	// Errors per second are limited, so that the node is no amplifier.
	answerRate = 1000
	// maxAnswer is an error's length: the minimum MTU of IPv6, and the usual length of routers in IPv4 (RFC 1812).
	maxAnswer4, maxAnswer6 = 576, 1280
	answerTTL              = 64
)

// answerer creates ICMP errors.
type answerer struct {
	own   netip.Addr
	now   func() time.Time
	since int64
	count int
	buf   [maxAnswer6]byte
}

// icmpErrorFor returns the ICMP error for p, nil if there must be none: for another error, a later fragment, source or
// destination addresses that are no node's, and beyond the limit.
func (a *answerer) icmpErrorFor(p *packet, c icmpError) []byte {
	if !a.own.IsValid() || a.own.Is4() == p.v6 || p.isError() || !p.v6 && binary.BigEndian.Uint16(p.b[6:])&0x1fff != 0 ||
		!p.unicast() {
		return nil
	}
	now := a.now().Unix()
	if now != a.since {
		a.since, a.count = now, 0
	}
	if a.count++; a.count > answerRate {
		return nil
	}
	if p.v6 {
		return a.icmp6ErrorFor(p, c)
	}
	n := min(len(p.b), maxAnswer4-ipv4Len-8)
	out := packet{b: a.buf[:ipv4Len+8+n], head: ipv4Len}
	clear(out.b[:ipv4Len+8])
	out.b[0], out.b[8], out.b[9] = 0x45, answerTTL, protoICMP
	out.resize()
	copy(out.b[12:], a.own.AsSlice())
	copy(out.b[16:], p.src())
	seal(out.b[:ipv4Len])
	icmp := out.b[ipv4Len:]
	icmp[0], icmp[1] = c.type4, c.code4
	copy(icmp[8:], p.b[:n])
	put(icmp[2:], sum(icmp, 0))
	return out.b
}

func (a *answerer) icmp6ErrorFor(p *packet, c icmpError) []byte {
	n := min(len(p.b), maxAnswer6-ipv6Len-8)
	out := packet{b: a.buf[:ipv6Len+8+n], head: ipv6Len, v6: true}
	clear(out.b[:ipv6Len+8])
	out.b[0], out.b[6], out.b[7] = 0x60, protoICMPv6, answerTTL
	out.resize()
	copy(out.b[8:], a.own.AsSlice())
	copy(out.b[24:], p.src())
	icmp := out.b[ipv6Len:]
	icmp[0], icmp[1] = c.type6, c.code6
	copy(icmp[8:], p.b[:n])
	put(icmp[2:], sum(icmp, pseudo(out.b, true, protoICMPv6, len(icmp))))
	return out.b
}

// isError reports whether a packet is an ICMP error, or may be one.
func (p *packet) isError() bool {
	if len(p.b) <= p.head {
		return p.proto == protoICMP || p.proto == protoICMPv6
	}
	kind := p.b[p.head]
	switch {
	case p.proto == protoICMP && !p.v6:
		return kind != 8 && kind != 0 && kind != 13 && kind != 14 // echo, timestamp
	case p.proto == protoICMPv6 && p.v6:
		return kind < 128
	}
	return false
}

// unicast reports whether both addresses are unicast addresses.
func (p *packet) unicast() bool {
	src, _ := netip.AddrFromSlice(p.src())
	dst, _ := netip.AddrFromSlice(p.dst())
	return !src.IsUnspecified() && !src.IsMulticast() && !src.IsLoopback() && !dst.IsMulticast() &&
		src != netip.AddrFrom4([4]byte{255, 255, 255, 255}) && dst != netip.AddrFrom4([4]byte{255, 255, 255, 255})
}
