// SPDX-License-Identifier: Apache-2.0

// Package forge makes frames by hand, also such as an honest guest never sends. Only tests use it.
package forge

import (
	"encoding/binary"
	"net/netip"
	"slices"
)

const (
	TypeIPv4, TypeARP, TypeIPv6, TypeVLAN, TypeQinQ = 0x0800, 0x0806, 0x86dd, 0x8100, 0x88a8
	ProtoTCP, ProtoUDP, ProtoICMPv6                 = 6, 17, 58
	ProtoFragment, ProtoDest                        = 44, 60
)

// Ether returns a frame.
func Ether(dst, src []byte, kind uint16, body []byte) []byte {
	return slices.Concat(dst, src, binary.BigEndian.AppendUint16(nil, kind), body)
}

// Tagged returns a frame with a VLAN tag.
func Tagged(frame []byte, kind, id uint16) []byte {
	tag := binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(nil, kind), id)
	return slices.Concat(frame[:12], tag, frame[12:])
}

// IP returns a packet of either family; an IPv4 packet may be a fragment, with the header's flags and offset.
func IP(src, dst netip.Addr, proto byte, body []byte, fragment ...uint16) []byte {
	if src.Is6() {
		head := binary.BigEndian.AppendUint16([]byte{0x60, 0, 0, 0}, uint16(len(body)))
		return slices.Concat(head, []byte{proto, 255}, src.AsSlice(), dst.AsSlice(), body)
	}
	head := binary.BigEndian.AppendUint16([]byte{0x45, 0}, uint16(20+len(body)))
	head = append(head, 0, 7)
	head = binary.BigEndian.AppendUint16(head, append(fragment, 0)[0])
	head = slices.Concat(head, []byte{64, proto, 0, 0}, src.AsSlice(), dst.AsSlice())
	binary.BigEndian.PutUint16(head[10:], Checksum(head))
	return append(head, body...)
}

func KindOf(a netip.Addr) uint16 {
	if a.Is6() {
		return TypeIPv6
	}
	return TypeIPv4
}

// UDP returns a datagram with its checksum.
func UDP(src, dst netip.AddrPort, body []byte) []byte {
	d := binary.BigEndian.AppendUint16(nil, src.Port())
	d = binary.BigEndian.AppendUint16(d, dst.Port())
	d = binary.BigEndian.AppendUint16(d, uint16(8+len(body)))
	d = slices.Concat(d, []byte{0, 0}, body)
	binary.BigEndian.PutUint16(d[6:], Checksum(pseudo(src.Addr(), dst.Addr(), ProtoUDP, len(d)), d))
	return d
}

// TCP returns a segment with flags (2: SYN, 16: ACK, 4: RST).
func TCP(src, dst netip.AddrPort, flags byte, body []byte) []byte {
	d := binary.BigEndian.AppendUint16(nil, src.Port())
	d = binary.BigEndian.AppendUint16(d, dst.Port())
	d = slices.Concat(d, []byte{0, 0, 0, 7, 0, 0, 0, 9, 0x50, flags, 16, 0, 0, 0, 0, 0}, body)
	binary.BigEndian.PutUint16(d[16:], Checksum(pseudo(src.Addr(), dst.Addr(), ProtoTCP, len(d)), d))
	return d
}

// ICMPv6 returns a message with its checksum.
func ICMPv6(src, dst netip.Addr, kind byte, body []byte) []byte {
	m := slices.Concat([]byte{kind, 0, 0, 0}, body)
	binary.BigEndian.PutUint16(m[2:], Checksum(pseudo(src, dst, ProtoICMPv6, len(m)), m))
	return m
}

func pseudo(src, dst netip.Addr, proto byte, n int) []byte {
	p := slices.Concat(src.AsSlice(), dst.AsSlice())
	if src.Is4() {
		return binary.BigEndian.AppendUint16(append(p, 0, proto), uint16(n))
	}
	return append(binary.BigEndian.AppendUint32(p, uint32(n)), 0, 0, 0, proto)
}

func Checksum(parts ...[]byte) uint16 {
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

// ARP returns an ARP reply.
func ARP(mac []byte, addr netip.Addr, to []byte, target netip.Addr) []byte {
	return slices.Concat([]byte{0, 1, 8, 0, 6, 4, 0, 2}, mac, addr.AsSlice(), to, target.AsSlice())
}

// Neighbor returns the body of a neighbor advertisement.
func Neighbor(addr netip.Addr, mac []byte) []byte {
	return slices.Concat([]byte{0x20, 0, 0, 0}, addr.AsSlice(), []byte{2, 1}, mac)
}

// Router returns the body of a router advertisement.
func Router(mac []byte) []byte {
	return slices.Concat([]byte{64, 0, 7, 8, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1}, mac)
}
