// SPDX-License-Identifier: Apache-2.0

package oracletest_test

import (
	"encoding/binary"
	"hash/crc32"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/plan/policy/naive"
)

// An echo request has the note after its 8-byte header. SCTP's first packet, for which many kernels have no sockets,
// has it in those fields of its INIT chunk that the sender may choose.
const (
	echoLen = 8 + 8
	initLen = 12 + 20
)

// sendRaw sends a ping or the first packet of an SCTP association.
func (e *ears) sendRaw(p naive.Packet, number int) error {
	family, proto, message := unix.AF_INET, unix.IPPROTO_ICMP, e.echo(8, number)
	if !p.Src.Is4() {
		family, proto, message = unix.AF_INET6, unix.IPPROTO_ICMPV6, e.echo(128, number)
	}
	if p.Proto == "SCTP" {
		proto, message = unix.IPPROTO_SCTP, e.association(p, number)
	}
	fd, err := unix.Socket(family, unix.SOCK_RAW|unix.SOCK_CLOEXEC, proto)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	if err := unix.Bind(fd, sockaddr(netip.AddrPortFrom(p.Src, 0))); err != nil {
		return err
	}
	return unix.Sendto(fd, message, 0, sockaddr(netip.AddrPortFrom(p.Dst, 0)))
}

// echo returns an echo request with a unique identifier, so that each reply matches one request.
func (e *ears) echo(kind byte, number int) []byte {
	e.port++
	m := binary.BigEndian.AppendUint16([]byte{kind, 0, 0, 0}, uint16(e.port))
	m = e.note(append(m, 0, 0), number)
	var sum uint32 // the kernel computes that of ICMPv6
	for i := 0; i < len(m); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(m[i:]))
	}
	sum = sum>>16 + sum&0xffff
	binary.BigEndian.PutUint16(m[2:], ^uint16(sum+sum>>16))
	return m
}

// association returns SCTP's INIT; its tag must not be 0.
func (e *ears) association(p naive.Packet, number int) []byte {
	e.port++
	m := binary.BigEndian.AppendUint16(nil, uint16(10000+e.port%50000))
	m = binary.BigEndian.AppendUint16(m, uint16(p.Port))
	m = append(m, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 20)
	m = binary.BigEndian.AppendUint32(m, uint32(number)+1)
	m = append(m, 0, 1, 0, 0, 0, 1, 0, 1)
	m = binary.BigEndian.AppendUint32(m, e.round)
	binary.LittleEndian.PutUint32(m[8:], crc32.Checksum(m, crc32.MakeTable(crc32.Castagnoli)))
	return m
}

// noteOf returns the note of such a packet; nil if it is another packet.
func noteOf(m []byte) []byte {
	if n := len(m) - 20; n == echoLen || n == initLen { // IPv4's raw sockets return the header, too
		m = m[20:]
	}
	switch {
	case len(m) == echoLen && (m[0] == 8 || m[0] == 128):
		return m[8:]
	case len(m) == initLen && m[12] == 1:
		return binary.BigEndian.AppendUint32(append([]byte{}, m[28:32]...), binary.BigEndian.Uint32(m[16:])-1)
	}
	return nil
}
