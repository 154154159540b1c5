// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"encoding/binary"
	"net/netip"

	"golang.org/x/sys/unix"
)

// Recognized is what a packet is to a probe.
type Recognized struct {
	Answer bool
	// Tunnel: the probe or its answer is inside of the packet.
	Tunnel bool
	// Key is that of Seen.
	Key uint64
}

// key returns what distinguishes a packet from others between the same ends: the sequence number of TCP and of echo
// requests, and the identification of an IPv4 datagram. It is 0 where there is none.
func key(network []byte, protocol byte, transport []byte) uint64 {
	const mark = 1 << 63 // a sequence number may be 0
	switch {
	case protocol == unix.IPPROTO_TCP && len(transport) >= 8:
		return mark | uint64(binary.BigEndian.Uint32(transport[seqOffset:]))
	case (protocol == unix.IPPROTO_ICMP || protocol == unix.IPPROTO_ICMPV6) && len(transport) >= 8:
		return mark | uint64(binary.BigEndian.Uint32(transport[4:]))
	case len(network) >= 20 && network[0]>>4 == 4:
		return uint64(binary.BigEndian.Uint16(network[4:]))
	}
	return 0
}

// Recognize finds the probe, or its answer, in the first bytes of an IP packet, also inside of VXLAN packets to a port (0:
// none).
func (p Probe) Recognize(packet []byte, vxlanPort uint16) (r Recognized, ok bool) {
	h, ok := parse(packet)
	if !ok {
		return r, false
	}
	if h.protocol == unix.IPPROTO_UDP && vxlanPort != 0 && len(h.transport) >= vxlanFrame &&
		binary.BigEndian.Uint16(h.transport[2:]) == vxlanPort {
		r.Tunnel = true
		if h, ok = parse(h.transport[vxlanFrame:]); !ok {
			return r, false
		}
	}
	r.Answer, ok = p.is(h)
	r.Key = key(h.network, h.protocol, h.transport)
	return r, ok
}

// header is a packet's header.
type header struct {
	from, to  netip.Addr
	protocol  byte
	network   []byte
	transport []byte
}

func parse(b []byte) (h header, ok bool) {
	switch {
	case len(b) >= 20 && b[0]>>4 == 4:
		size := int(b[0]&0xf) * 4
		if size < 20 || size > len(b) {
			return h, false
		}
		return header{netip.AddrFrom4([4]byte(b[12:16])), netip.AddrFrom4([4]byte(b[16:20])), b[9], b, b[size:]}, true
	case len(b) >= 40 && b[0]>>4 == 6: // no extension header
		return header{netip.AddrFrom16([16]byte(b[8:24])), netip.AddrFrom16([16]byte(b[24:40])), b[6], b, b[40:]}, true
	}
	return h, false
}

// is reports whether a packet is the probe or its answer.
func (p Probe) is(h header) (answer, ok bool) {
	if h.protocol != p.Protocol || len(h.transport) < payloadOffset+4 {
		return false, false
	}
	if p.Live {
		from, to := binary.BigEndian.Uint16(h.transport), binary.BigEndian.Uint16(h.transport[2:])
		switch port := p.To.Port(); {
		case h.from == p.From.Addr() && h.to == p.To.Addr() && (port == 0 || to == port):
			return false, true
		case h.from == p.To.Addr() && h.to == p.From.Addr() && (port == 0 || from == port):
			return true, true
		}
		return false, false
	}
	if p.Protocol == unix.IPPROTO_TCP {
		switch {
		case binary.BigEndian.Uint32(h.transport[seqOffset:]) == p.Cookie:
			return false, true
		case binary.BigEndian.Uint32(h.transport[ackOffset:]) == p.Cookie+1:
			return true, true
		}
		return false, false
	}
	return h.from != p.From.Addr(), binary.BigEndian.Uint32(h.transport[payloadOffset:]) == p.Cookie
}
