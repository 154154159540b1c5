// SPDX-License-Identifier: Apache-2.0

package udp

import "encoding/binary"

// Protocol numbers.
const (
	protoICMP   = 1
	protoTCP    = 6
	protoUDP    = 17
	protoICMPv6 = 58
)

const (
	ipv4Len = 20 // without options
	ipv6Len = 40
	udpLen  = 8
	tcpLen  = 20 // without options
)

// packet is an IP packet with a parsed header.
type packet struct {
	b     []byte
	v6    bool
	head  int // length of the IP header; IPv6 extension headers count as payload
	proto byte
	// whole is false for a fragment and for a packet with options: it is forwarded without further parsing.
	whole bool
}

// parse parses a packet and drops data after its end. ok is false if it is not an IP packet.
func parse(b []byte) (p packet, ok bool) {
	if len(b) < ipv4Len {
		return p, false
	}
	switch b[0] >> 4 {
	case 4:
		p.head = int(b[0]&15) * 4
		size := int(binary.BigEndian.Uint16(b[2:]))
		if p.head < ipv4Len || size < p.head || size > len(b) {
			return p, false
		}
		p.b, p.proto = b[:size], b[9]
		p.whole = p.head == ipv4Len && binary.BigEndian.Uint16(b[6:])&0x3fff == 0
	case 6:
		if len(b) < ipv6Len {
			return p, false
		}
		size := ipv6Len + int(binary.BigEndian.Uint16(b[4:]))
		if size > len(b) {
			return p, false
		}
		p.b, p.proto, p.v6, p.head = b[:size], b[6], true, ipv6Len
		p.whole = p.proto == protoTCP || p.proto == protoUDP
	default:
		return p, false
	}
	return p, true
}

func (p *packet) src() []byte {
	if p.v6 {
		return p.b[8:24]
	}
	return p.b[12:16]
}

func (p *packet) dst() []byte {
	if p.v6 {
		return p.b[24:40]
	}
	return p.b[16:20]
}

// resize writes the packet's length into its header.
func (p *packet) resize() {
	if p.v6 {
		binary.BigEndian.PutUint16(p.b[4:], uint16(len(p.b)-ipv6Len))
		return
	}
	binary.BigEndian.PutUint16(p.b[2:], uint16(len(p.b)))
}

// age decrements the packet's TTL; it returns false if the TTL expires.
func (p *packet) age() bool {
	if p.v6 {
		if p.b[7] <= 1 {
			return false
		}
		p.b[7]--
		return true
	}
	if p.b[8] <= 1 {
		return false
	}
	p.b[8]--
	s := uint32(binary.BigEndian.Uint16(p.b[10:])) + 0x100 // RFC 1624
	if s >= 0xffff {
		s++
	}
	binary.BigEndian.PutUint16(p.b[10:], uint16(s))
	return true
}

// payload returns the offset of the data after the TCP or UDP header, 0 if there is none.
func (p *packet) payload() int {
	switch {
	case !p.whole:
	case p.proto == protoUDP && len(p.b) >= p.head+udpLen:
		return p.head + udpLen
	case p.proto == protoTCP && len(p.b) >= p.head+tcpLen:
		if n := int(p.b[p.head+12]>>4) * 4; n >= tcpLen && len(p.b) >= p.head+n {
			return p.head + n
		}
	}
	return 0
}
