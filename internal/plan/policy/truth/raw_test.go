// SPDX-License-Identifier: Apache-2.0

package truth_test

import (
	"encoding/binary"
	"hash/crc32"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/plan/policy/naive"
)

// An echo request has the note behind its 8 bytes of header. SCTP's first packet, which many kernels have no sockets
// for, has it in the fields of its INIT chunk that are the sender's to choose.
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

// echo is an echo request with an identifier of its own, so that none is an answer's sister.
func (e *ears) echo(kind byte, number int) []byte {
	e.port++
	m := binary.BigEndian.AppendUint16([]byte{kind, 0, 0, 0}, uint16(e.port))
	m = e.note(append(m, 0, 0), number)
	var sum uint32 // of ICMPv6 the kernel makes it
	for i := 0; i < len(m); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(m[i:]))
	}
	sum = sum>>16 + sum&0xffff
	binary.BigEndian.PutUint16(m[2:], ^uint16(sum+sum>>16))
	return m
}

// association is SCTP's INIT; its tag may not be 0.
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

// noteOf is the note of such a packet; nil where it is none.
func noteOf(m []byte) []byte {
	if n := len(m) - 20; n == echoLen || n == initLen { // IPv4's raw sockets give the header, too
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
