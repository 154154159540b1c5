// SPDX-License-Identifier: Apache-2.0

package hostile_test

import (
	"encoding/binary"
	"net/netip"
	"slices"
)

const (
	typeIPv4, typeARP, typeIPv6, typeVLAN, typeQinQ = 0x0800, 0x0806, 0x86dd, 0x8100, 0x88a8

	protoICMP, protoIPIP, protoTCP, protoUDP, protoSIT  = 1, 4, 6, 17, 41
	protoRouting, protoFragment, protoICMPv6, protoDest = 43, 44, 58, 60
)

// mac is an Ethernet address.
type mac = []byte

func broadcast() mac { return mac{255, 255, 255, 255, 255, 255} }

// allNodes is the Ethernet address of ff02::1.
func allNodes() mac { return mac{0x33, 0x33, 0, 0, 0, 1} }

// ether is a frame.
func ether(dst, src mac, kind uint16, body []byte) []byte {
	return slices.Concat(dst, src, binary.BigEndian.AppendUint16(nil, kind), body)
}

// tagged puts a VLAN tag into a frame.
func tagged(frame []byte, kind, id uint16) []byte {
	tag := binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(nil, kind), id)
	return slices.Concat(frame[:12], tag, frame[12:])
}

// packet is an IP packet of either family.
type packet struct {
	src, dst netip.Addr
	proto    byte
	body     []byte
	// hops is the TTL or hop limit; 0 is 64.
	hops byte
	// fragment is IPv4's field of flags and offset, id its identification.
	fragment, id uint16
	// options are IPv4's, a multiple of four bytes.
	options []byte
}

func (p packet) bytes() []byte {
	if p.hops == 0 {
		p.hops = 64
	}
	if p.src.Is6() {
		head := binary.BigEndian.AppendUint16([]byte{0x60, 0, 0, 0}, uint16(len(p.body)))
		return slices.Concat(head, []byte{p.proto, p.hops}, p.src.AsSlice(), p.dst.AsSlice(), p.body)
	}
	size := 20 + len(p.options)
	head := binary.BigEndian.AppendUint16([]byte{0x40 | byte(size/4), 0}, uint16(size+len(p.body)))
	head = binary.BigEndian.AppendUint16(head, p.id)
	head = binary.BigEndian.AppendUint16(head, p.fragment)
	head = slices.Concat(head, []byte{p.hops, p.proto, 0, 0}, p.src.AsSlice(), p.dst.AsSlice(), p.options)
	binary.BigEndian.PutUint16(head[10:], checksum(head))
	return slices.Concat(head, p.body)
}

func kindOf(a netip.Addr) uint16 {
	if a.Is6() {
		return typeIPv6
	}
	return typeIPv4
}

// udp is a datagram with its checksum.
func udp(src, dst netip.AddrPort, body []byte) []byte {
	d := binary.BigEndian.AppendUint16(nil, src.Port())
	d = binary.BigEndian.AppendUint16(d, dst.Port())
	d = binary.BigEndian.AppendUint16(d, uint16(8+len(body)))
	d = slices.Concat(d, []byte{0, 0}, body)
	binary.BigEndian.PutUint16(d[6:], checksum(pseudo(src.Addr(), dst.Addr(), protoUDP, len(d)), d))
	return d
}

// tcp is a segment with flags (2: SYN, 16: ACK, 4: RST).
func tcp(src, dst netip.AddrPort, flags byte, body []byte) []byte {
	d := binary.BigEndian.AppendUint16(nil, src.Port())
	d = binary.BigEndian.AppendUint16(d, dst.Port())
	d = slices.Concat(d, []byte{0, 0, 0, 7, 0, 0, 0, 9, 0x50, flags, 16, 0, 0, 0, 0, 0}, body)
	binary.BigEndian.PutUint16(d[16:], checksum(pseudo(src.Addr(), dst.Addr(), protoTCP, len(d)), d))
	return d
}

// icmp4 is a message with its checksum.
func icmp4(kind, code byte, body []byte) []byte {
	m := slices.Concat([]byte{kind, code, 0, 0}, body)
	binary.BigEndian.PutUint16(m[2:], checksum(m))
	return m
}

// icmp6 is a message with its checksum.
func icmp6(src, dst netip.Addr, kind byte, body []byte) []byte {
	m := slices.Concat([]byte{kind, 0, 0, 0}, body)
	binary.BigEndian.PutUint16(m[2:], checksum(pseudo(src, dst, protoICMPv6, len(m)), m))
	return m
}

func pseudo(src, dst netip.Addr, proto byte, n int) []byte {
	p := slices.Concat(src.AsSlice(), dst.AsSlice())
	if src.Is4() {
		return binary.BigEndian.AppendUint16(append(p, 0, proto), uint16(n))
	}
	return append(binary.BigEndian.AppendUint32(p, uint32(n)), 0, 0, 0, proto)
}

func checksum(parts ...[]byte) uint16 {
	var sum uint32
	for _, b := range parts {
		for i := 0; i+1 < len(b); i += 2 {
			sum += uint32(binary.BigEndian.Uint16(b[i:]))
		}
		if len(b)%2 == 1 {
			sum += uint32(b[len(b)-1]) << 8
		}
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}

// arp is a reply that says which Ethernet address an address has.
func arp(m mac, is netip.Addr, to mac, peer netip.Addr) []byte {
	return slices.Concat([]byte{0, 1, 8, 0, 6, 4, 0, 2}, m, is.AsSlice(), to, peer.AsSlice())
}

// neighborAdvert is the body of an advertisement that says which Ethernet address an address has.
func neighborAdvert(is netip.Addr, m mac) []byte {
	return slices.Concat([]byte{0x20, 0, 0, 0}, is.AsSlice(), []byte{2, 1}, m)
}

// ndOption has a word in an option of neighbor discovery that is for experiments (RFC 4727), so the message is a valid one.
func ndOption(word []byte) []byte { return slices.Concat([]byte{253, 2}, word, make([]byte, 6)) }

// routerAdvert is the body of an advertisement of a default router.
func routerAdvert(m mac) []byte {
	return slices.Concat([]byte{64, 0, 7, 8, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1}, m)
}

// vxlan is a frame in a VXLAN header.
func vxlan(vni uint32, frame []byte) []byte {
	return slices.Concat([]byte{8, 0, 0, 0}, binary.BigEndian.AppendUint32(nil, vni<<8), frame)
}
