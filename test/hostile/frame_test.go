// SPDX-License-Identifier: Apache-2.0

package hostile_test

import (
	"encoding/binary"
	"net/netip"
	"slices"

	"github.com/weft-net/weft/internal/nettest/forge"
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
	binary.BigEndian.PutUint16(head[10:], forge.Checksum(head))
	return slices.Concat(head, p.body)
}

// icmp4 is a message with its checksum.
func icmp4(kind, code byte, body []byte) []byte {
	m := slices.Concat([]byte{kind, code, 0, 0}, body)
	binary.BigEndian.PutUint16(m[2:], forge.Checksum(m))
	return m
}

// ndOption has a word in an option of neighbor discovery that is for experiments (RFC 4727), so the message is a valid one.
func ndOption(word []byte) []byte { return slices.Concat([]byte{253, 2}, word, make([]byte, 6)) }

// vxlan is a frame in a VXLAN header.
func vxlan(vni uint32, frame []byte) []byte {
	return slices.Concat([]byte{8, 0, 0, 0}, binary.BigEndian.AppendUint32(nil, vni<<8), frame)
}
