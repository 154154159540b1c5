// SPDX-License-Identifier: Apache-2.0

package matrix

import (
	"encoding/binary"
	"net"
	"net/netip"
	"slices"
	"testing"
)

const (
	typeIPv4, typeARP, typeIPv6, typeVLAN, typeQinQ = 0x0800, 0x0806, 0x86dd, 0x8100, 0x88a8
	protoUDP, protoICMPv6, protoFragment, protoDest = 17, 58, 44, 60
)

// parseMAC parses a MAC address.
func parseMAC(t testing.TB, s string) []byte {
	t.Helper()
	m, err := net.ParseMAC(s)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// ether returns a frame.
func ether(dst, src []byte, kind uint16, body []byte) []byte {
	return slices.Concat(dst, src, binary.BigEndian.AppendUint16(nil, kind), body)
}

// tagged returns a frame with a VLAN tag.
func tagged(frame []byte, kind, id uint16) []byte {
	tag := binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(nil, kind), id)
	return slices.Concat(frame[:12], tag, frame[12:])
}

// ip returns a packet of either family; an IPv4 packet may be a fragment, with the header's flags and offset.
func ip(src, dst netip.Addr, proto byte, body []byte, fragment ...uint16) []byte {
	if src.Is6() {
		head := binary.BigEndian.AppendUint16([]byte{0x60, 0, 0, 0}, uint16(len(body)))
		return slices.Concat(head, []byte{proto, 255}, src.AsSlice(), dst.AsSlice(), body)
	}
	head := binary.BigEndian.AppendUint16([]byte{0x45, 0}, uint16(20+len(body)))
	head = append(head, 0, 7)
	head = binary.BigEndian.AppendUint16(head, append(fragment, 0)[0])
	head = slices.Concat(head, []byte{64, proto, 0, 0}, src.AsSlice(), dst.AsSlice())
	binary.BigEndian.PutUint16(head[10:], checksum(head))
	return append(head, body...)
}

func kindOf(a netip.Addr) uint16 {
	if a.Is6() {
		return typeIPv6
	}
	return typeIPv4
}

// udp returns a datagram with its checksum.
func udp(src, dst netip.AddrPort, body []byte) []byte {
	d := binary.BigEndian.AppendUint16(nil, src.Port())
	d = binary.BigEndian.AppendUint16(d, dst.Port())
	d = binary.BigEndian.AppendUint16(d, uint16(8+len(body)))
	d = slices.Concat(d, []byte{0, 0}, body)
	binary.BigEndian.PutUint16(d[6:], checksum(pseudo(src.Addr(), dst.Addr(), protoUDP, len(d)), d))
	return d
}

// icmp6 returns a message with its checksum.
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

// arp returns an ARP reply.
func arp(mac []byte, addr netip.Addr, to []byte, target netip.Addr) []byte {
	return slices.Concat([]byte{0, 1, 8, 0, 6, 4, 0, 2}, mac, addr.AsSlice(), to, target.AsSlice())
}

// neighbor returns the body of a neighbor advertisement.
func neighbor(addr netip.Addr, mac []byte) []byte {
	return slices.Concat([]byte{0x20, 0, 0, 0}, addr.AsSlice(), []byte{2, 1}, mac)
}

// router returns the body of a router advertisement.
func router(mac []byte) []byte {
	return slices.Concat([]byte{64, 0, 7, 8, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1}, mac)
}
