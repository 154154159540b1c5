// SPDX-License-Identifier: Apache-2.0

package udp

import (
	"encoding/binary"
	"math/bits"
)

// sum adds the 16-bit words of b, in the host's byte order, to a partial sum (RFC 1071: the byte order does not matter
// as long as it is the same). Only the last of several parts may have an odd length.
func sum(b []byte, begin uint64) uint64 {
	s, c := begin, uint64(0)
	for len(b) >= 64 {
		w := (*[64]byte)(b)
		s, c = bits.Add64(s, binary.NativeEndian.Uint64(w[0:]), 0)
		s, c = bits.Add64(s, binary.NativeEndian.Uint64(w[8:]), c)
		s, c = bits.Add64(s, binary.NativeEndian.Uint64(w[16:]), c)
		s, c = bits.Add64(s, binary.NativeEndian.Uint64(w[24:]), c)
		s, c = bits.Add64(s, binary.NativeEndian.Uint64(w[32:]), c)
		s, c = bits.Add64(s, binary.NativeEndian.Uint64(w[40:]), c)
		s, c = bits.Add64(s, binary.NativeEndian.Uint64(w[48:]), c)
		s, c = bits.Add64(s, binary.NativeEndian.Uint64(w[56:]), c)
		s += c
		b = b[64:]
	}
	for len(b) >= 8 {
		s, c = bits.Add64(s, binary.NativeEndian.Uint64(b), 0)
		s += c
		b = b[8:]
	}
	if len(b) > 0 {
		var rest [8]byte
		copy(rest[:], b)
		s, c = bits.Add64(s, binary.NativeEndian.Uint64(rest[:]), 0)
		s += c
	}
	return s
}

// fold reduces a sum to 16 bits.
func fold(s uint64) uint16 {
	s = s>>32 + s&0xffffffff
	s = s>>32 + s&0xffffffff
	s = s>>16 + s&0xffff
	s = s>>16 + s&0xffff
	return uint16(s)
}

// onWire returns a number as a word of the packet.
func onWire(n uint16) uint64 {
	var b [2]byte
	binary.BigEndian.PutUint16(b[:], n)
	return uint64(binary.NativeEndian.Uint16(b[:]))
}

// pseudo returns the sum of the pseudo header of TCP, UDP and ICMPv6.
func pseudo(ip []byte, v6 bool, proto byte, length int) uint64 {
	if v6 {
		return sum(ip[8:40], onWire(uint16(length))+onWire(uint16(proto)))
	}
	return sum(ip[12:20], onWire(uint16(length))+onWire(uint16(proto)))
}

// put writes a checksum.
func put(b []byte, s uint64) { binary.NativeEndian.PutUint16(b, ^fold(s)) }

// seal writes the checksum of an IPv4 header.
func seal(ip []byte) {
	ip[10], ip[11] = 0, 0
	put(ip[10:], sum(ip, 0))
}
