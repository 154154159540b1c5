// SPDX-License-Identifier: Apache-2.0

package exchange

import (
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
)

const (
	etherLen = 14
	ipLen    = 20
	udpLen   = 8

	serverPort4 = 67
	clientPort4 = 68
)

var errFrame = errors.New("frame is no DHCPv4 answer")

// frame4 is an Ethernet frame with a message for a server.
func frame4(src, dst net.HardwareAddr, from, to netip.Addr, message []byte) []byte {
	f := make([]byte, etherLen+ipLen+udpLen, etherLen+ipLen+udpLen+len(message))
	copy(f, dst)
	copy(f[6:], src)
	binary.BigEndian.PutUint16(f[12:], 0x0800)
	ip := f[etherLen:]
	ip[0], ip[8], ip[9] = 0x45, 64, 17
	binary.BigEndian.PutUint16(ip[2:], uint16(ipLen+udpLen+len(message)))
	copy(ip[12:], from.AsSlice())
	copy(ip[16:], to.AsSlice())
	binary.BigEndian.PutUint16(ip[10:], sum16(ip[:ipLen]))
	udp := ip[ipLen:]
	binary.BigEndian.PutUint16(udp, clientPort4)
	binary.BigEndian.PutUint16(udp[2:], serverPort4)
	binary.BigEndian.PutUint16(udp[4:], uint16(udpLen+len(message)))
	pseudo := append(append([]byte{}, ip[12:20]...), 0, 17, udp[4], udp[5])
	f = append(f, message...)
	sum := sum16(pseudo, f[etherLen+ipLen:])
	if sum == 0 {
		sum = 0xffff
	}
	binary.BigEndian.PutUint16(f[etherLen+ipLen+6:], sum)
	return f
}

// parse4 returns the message for a client in a frame, and the sender's MAC address. It does not check the UDP checksum,
// which a sender on the same host may leave to (missing) hardware.
func parse4(f []byte) (message []byte, from net.HardwareAddr, err error) {
	if len(f) < etherLen+ipLen+udpLen || binary.BigEndian.Uint16(f[12:]) != 0x0800 {
		return nil, nil, errFrame
	}
	ip := f[etherLen:]
	header, total := int(ip[0]&15)*4, int(binary.BigEndian.Uint16(ip[2:]))
	if ip[0]>>4 != 4 || header < ipLen || ip[9] != 17 || binary.BigEndian.Uint16(ip[6:])&0x3fff != 0 || total > len(ip) ||
		total < header+udpLen {
		return nil, nil, errFrame
	}
	udp := ip[header:total]
	size := int(binary.BigEndian.Uint16(udp[4:]))
	if binary.BigEndian.Uint16(udp[2:]) != clientPort4 || size < udpLen || size > len(udp) {
		return nil, nil, errFrame
	}
	return udp[udpLen:size], net.HardwareAddr(append([]byte{}, f[6:12]...)), nil
}

// sum16 returns the internet checksum of the parts, all of even length but the last.
func sum16(parts ...[]byte) uint16 {
	sum := uint32(0)
	for _, p := range parts {
		for ; len(p) > 1; p = p[2:] {
			sum += uint32(binary.BigEndian.Uint16(p))
		}
		if len(p) == 1 {
			sum += uint32(p[0]) << 8
		}
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}
