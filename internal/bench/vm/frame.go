// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"encoding/binary"
	"net"
	"net/netip"
)

// vnetHeader stands before each frame of a tap: nothing is left to the other side.
const vnetHeader = 10

// size of a frame in bytes, without its check sequence.
const size = 64

// frame is a datagram of UDP in 64 bytes. Its checksum is left out, as IPv4 allows.
func frame(toMAC, fromMAC net.HardwareAddr, from, to netip.Addr) []byte {
	b := make([]byte, 0, size)
	b = append(append(b, toMAC...), fromMAC...)
	b = binary.BigEndian.AppendUint16(b, 0x0800)
	ip := make([]byte, 20)
	ip[0], ip[8], ip[9] = 0x45, 64, 17
	binary.BigEndian.PutUint16(ip[2:], size-14)
	copy(ip[12:], from.AsSlice())
	copy(ip[16:], to.AsSlice())
	binary.BigEndian.PutUint16(ip[10:], checksum(ip))
	b = append(b, ip...)
	for _, v := range []uint16{40000, 9, size - 14 - 20, 0} {
		b = binary.BigEndian.AppendUint16(b, v)
	}
	return b[:size]
}

func checksum(b []byte) uint16 {
	var sum uint32
	for i := 0; i < len(b); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	sum = sum>>16 + sum&0xffff
	return ^uint16(sum>>16 + sum)
}
