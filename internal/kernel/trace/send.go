// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/kernel/nft"
	"github.com/weft-net/weft/internal/netns"
)

// Probe is a packet with a cookie: a TCP SYN whose sequence number it is, or a UDP datagram or an ICMP echo request in
// whose payload it is. No socket waits for an answer: the kernel of the sender resets a TCP connection that is accepted.
type Probe struct {
	Protocol uint8 // IPPROTO_TCP, IPPROTO_UDP, IPPROTO_ICMP or IPPROTO_ICMPV6
	Cookie   uint32
	From, To netip.AddrPort // without ports for ICMP
	// Size is the size of the IP packet in bytes; less than its headers is the smallest. It must not be fragmented.
	Size int
	// Live: nothing is sent. The trace follows packets that others send between the addresses and to the port, and their
	// answers; the port of From is not known.
	Live bool
}

// Places in a probe, in bytes from its transport header.
const (
	tcpHeader     = 20
	seqOffset     = 4
	ackOffset     = 8
	payloadOffset = 8          // of UDP and ICMP
	vxlanFrame    = 8 + 8 + 14 // UDP, VXLAN, the inner Ethernet header
)

// Matches select the probe and its answer, also inside of VXLAN packets to a port (0: none). An answer to UDP is not
// selected, unless it repeats the payload.
func (p Probe) Matches(vxlanPort uint16) []nft.Match {
	if p.Live {
		return p.tuples(vxlanPort)
	}
	values := []nft.Bytes{{Transport: true, Offset: payloadOffset, Value: binary.BigEndian.AppendUint32(nil, p.Cookie)}}
	if p.Protocol == unix.IPPROTO_TCP {
		values = []nft.Bytes{
			{Transport: true, Offset: seqOffset, Value: binary.BigEndian.AppendUint32(nil, p.Cookie)},
			{Transport: true, Offset: ackOffset, Value: binary.BigEndian.AppendUint32(nil, p.Cookie+1)},
		}
	}
	var out []nft.Match
	for _, v := range values {
		out = append(out, nft.Match{Protocol: p.Protocol, Bytes: []nft.Bytes{v}})
	}
	if vxlanPort == 0 {
		return out
	}
	inner := 20
	if p.To.Addr().Is6() {
		inner = 40
	}
	port := nft.Bytes{Transport: true, Offset: 2, Value: binary.BigEndian.AppendUint16(nil, vxlanPort)}
	for _, v := range values {
		v.Offset += vxlanFrame + inner
		out = append(out, nft.Match{Protocol: unix.IPPROTO_UDP, Bytes: []nft.Bytes{port, v}})
	}
	return out
}

// tuples select the packets between the addresses and to the port, and their answers, also inside of VXLAN packets.
func (p Probe) tuples(vxlanPort uint16) []nft.Match {
	from, to := p.From.Addr().AsSlice(), p.To.Addr().AsSlice()
	addrs, header := 12, 20
	if p.To.Addr().Is6() {
		addrs, header = 8, 40
	}
	var out []nft.Match
	for _, answer := range []bool{false, true} {
		src, dst, portAt := from, to, 2
		if answer {
			src, dst, portAt = to, from, 0
		}
		values := []nft.Bytes{{Offset: addrs, Value: src}, {Offset: addrs + len(src), Value: dst}}
		if p.To.Port() != 0 {
			values = append(values,
				nft.Bytes{Transport: true, Offset: portAt, Value: binary.BigEndian.AppendUint16(nil, p.To.Port())})
		}
		out = append(out, nft.Match{Protocol: p.Protocol, Bytes: values})
		if vxlanPort == 0 {
			continue
		}
		inside := []nft.Bytes{
			{Transport: true, Offset: 2, Value: binary.BigEndian.AppendUint16(nil, vxlanPort)},
			{Transport: true, Offset: vxlanFrame + addrs, Value: src},
			{Transport: true, Offset: vxlanFrame + addrs + len(src), Value: dst},
		}
		if p.To.Port() != 0 {
			inside = append(
				inside,
				nft.Bytes{
					Transport: true,
					Offset:    vxlanFrame + header + portAt,
					Value:     binary.BigEndian.AppendUint16(nil, p.To.Port()),
				},
			)
		}
		out = append(out, nft.Match{Protocol: unix.IPPROTO_UDP, Bytes: inside})
	}
	return out
}

// Check returns an error about a probe that cannot be sent.
func (p Probe) Check() error {
	switch from, to := p.From.Addr(), p.To.Addr(); {
	case !from.IsValid() || !to.IsValid() || from.Is4() != to.Is4():
		return fmt.Errorf("probe from %q to %q: not two addresses of one family", p.From, p.To)
	case p.Size < 0 || p.Size > 65535:
		return fmt.Errorf("probe: size %d is not 0 to 65535", p.Size)
	}
	switch p.Protocol {
	case unix.IPPROTO_TCP, unix.IPPROTO_UDP, unix.IPPROTO_ICMP, unix.IPPROTO_ICMPV6:
		return nil
	}
	return fmt.Errorf("probe: protocol %d is neither TCP, UDP nor ICMP", p.Protocol)
}

// Send sends the probe from a namespace.
func (p Probe) Send(ns *netns.NS) error {
	if err := p.Check(); err != nil {
		return err
	}
	family, header := unix.AF_INET, 20
	if p.To.Addr().Is6() {
		family, header = unix.AF_INET6, 40
	}
	segment := p.segment(header)
	return ns.Do(func() (err error) {
		fd, err := unix.Socket(family, unix.SOCK_RAW|unix.SOCK_CLOEXEC, int(p.Protocol))
		if err != nil {
			return fmt.Errorf("probe: raw socket: %w", err)
		}
		defer func() { err = errors.Join(err, unix.Close(fd)) }()
		if family == unix.AF_INET {
			err = errors.Join(unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_PROBE),
				unix.Bind(fd, &unix.SockaddrInet4{Addr: p.From.Addr().As4()}))
			if err == nil {
				err = unix.Sendto(fd, segment, 0, &unix.SockaddrInet4{Addr: p.To.Addr().As4()})
			}
		} else {
			err = errors.Join(unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER, unix.IPV6_PMTUDISC_PROBE),
				unix.Bind(fd, &unix.SockaddrInet6{Addr: p.From.Addr().As16()}))
			if err == nil {
				err = unix.Sendto(fd, segment, 0, &unix.SockaddrInet6{Addr: p.To.Addr().As16()})
			}
		}
		if err != nil {
			return fmt.Errorf("probe from %s to %s: %w", p.From, p.To, err)
		}
		return nil
	})
}

// segment returns the packet without its IP header.
func (p Probe) segment(ipHeader int) []byte {
	least := payloadOffset + 4
	if p.Protocol == unix.IPPROTO_TCP {
		least = tcpHeader
	}
	b := make([]byte, max(least, p.Size-ipHeader))
	checksumAt := 2
	switch p.Protocol {
	case unix.IPPROTO_TCP:
		binary.BigEndian.PutUint32(b[seqOffset:], p.Cookie)
		b[12], b[13] = tcpHeader/4<<4, 2 // no options; SYN
		binary.BigEndian.PutUint16(b[14:], 0xffff)
		checksumAt = 16
	case unix.IPPROTO_UDP:
		binary.BigEndian.PutUint16(b[4:], uint16(len(b)))
		checksumAt = 6
	case unix.IPPROTO_ICMP:
		b[0] = 8 // echo request
	case unix.IPPROTO_ICMPV6:
		b[0] = 128
	}
	if p.Protocol == unix.IPPROTO_TCP || p.Protocol == unix.IPPROTO_UDP {
		binary.BigEndian.PutUint16(b, p.From.Port())
		binary.BigEndian.PutUint16(b[2:], p.To.Port())
	} else {
		binary.BigEndian.PutUint16(b[4:], uint16(p.Cookie)) // identifier
	}
	if p.Protocol != unix.IPPROTO_TCP {
		binary.BigEndian.PutUint32(b[payloadOffset:], p.Cookie)
	}
	if p.Protocol != unix.IPPROTO_ICMPV6 { // the kernel computes that one
		binary.BigEndian.PutUint16(b[checksumAt:], p.checksum(b))
	}
	return b
}

// checksum returns the checksum of TCP and UDP (RFC 9293, 3.1), over the pseudo header and the segment, or of ICMP, over
// the message.
func (p Probe) checksum(segment []byte) uint16 {
	var sum uint32
	add := func(b []byte) {
		for i := 0; i+1 < len(b); i += 2 {
			sum += uint32(binary.BigEndian.Uint16(b[i:]))
		}
		if len(b)%2 == 1 {
			sum += uint32(b[len(b)-1]) << 8
		}
	}
	if p.Protocol != unix.IPPROTO_ICMP {
		add(p.From.Addr().AsSlice())
		add(p.To.Addr().AsSlice())
		sum += uint32(p.Protocol) + uint32(len(segment))
	}
	add(segment)
	for sum>>16 != 0 {
		sum = sum&0xffff + sum>>16
	}
	return ^uint16(sum)
}
