// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"encoding/binary"
	"net"
	"net/netip"
)

// vnetHeader is the size of the virtio-net header before each frame of a tap; zeros request no offloads.
const vnetHeader = 10

// frameSize is the size of a frame in bytes, without its FCS.
const frameSize = 64

const headers = 14 + 20 + 8

// frame returns a frame of 64 bytes with a UDP datagram.
func frame(toMAC, fromMAC net.HardwareAddr, from, to netip.Addr) []byte {
	const port, discard = 40000, 9
	return datagram(toMAC, fromMAC, netip.AddrPortFrom(from, port), netip.AddrPortFrom(to, discard),
		make([]byte, frameSize-headers))
}

// datagram returns a frame with a UDP datagram, without the UDP checksum, which is optional over IPv4.
func datagram(toMAC, fromMAC net.HardwareAddr, from, to netip.AddrPort, payload []byte) []byte {
	b := make([]byte, 0, headers+len(payload))
	b = append(append(b, toMAC...), fromMAC...)
	b = binary.BigEndian.AppendUint16(b, 0x0800)
	ip := make([]byte, 20)
	ip[0], ip[8], ip[9] = 0x45, 64, 17
	binary.BigEndian.PutUint16(ip[2:], uint16(headers-14+len(payload)))
	copy(ip[12:], from.Addr().AsSlice())
	copy(ip[16:], to.Addr().AsSlice())
	binary.BigEndian.PutUint16(ip[10:], checksum(ip))
	b = append(b, ip...)
	for _, v := range []uint16{from.Port(), to.Port(), uint16(8 + len(payload)), 0} {
		b = binary.BigEndian.AppendUint16(b, v)
	}
	return append(b, payload...)
}

func checksum(b []byte) uint16 {
	var sum uint32
	for i := 0; i < len(b); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	sum = sum>>16 + sum&0xffff
	return ^uint16(sum>>16 + sum)
}
