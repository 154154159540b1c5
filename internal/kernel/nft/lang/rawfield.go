// SPDX-License-Identifier: Apache-2.0

package lang

import (
	"strconv"

	"golang.org/x/sys/unix"
)

// requires sets which protocols a packet must have for the field to be valid.
func (f field) requires(l3, l4 byte) field {
	f.l3, f.l4 = l3, l4
	return f
}

// rawFields are parts of packets that nft can only express as "@BASE,BIT,BITS": of the packet quoted in an ICMP error
// after its own header of eight bytes, of a tunnel's inner packet, and of IPv6's fragment header. nft itself, if it
// loads one of our rules, requires sets of plain numbers for them.
func rawFields(yield func(field) bool) bool {
	for _, r := range []struct {
		at  uint32
		typ string
	}{
		// IPv4
		{8, "inet_proto"},
		{17, "inet_proto"},
		{20, "ipv4_addr"},
		{24, "ipv4_addr"},
		{28, "inet_service"},
		{30, "inet_service"},
		{32, "inet_service"},
		// VXLAN, IP in IP
		{12, "integer"},
		{13, "inet_service"},
		{12, "ipv4_addr"},
		{38, "ipv6_addr"},
		{42, "ipv4_addr"},
		{16, "ipv4_addr"},
		{46, "ipv4_addr"},
		{54, "ipv6_addr"},
		// IPv6
		{14, "inet_proto"},
		{16, "ipv6_addr"},
		{32, "ipv6_addr"},
		{48, "inet_service"},
		{50, "inet_service"},
		{52, "inet_service"},
	} {
		if !yield(rawField("th", unix.NFT_PAYLOAD_TRANSPORT_HEADER, r.typ, r.at)) {
			return false
		}
	}
	return yield(rawField("nh", unix.NFT_PAYLOAD_NETWORK_HEADER, "inet_proto", 40).requires(protoIPv6, 0)) &&
		yield(rawField("nh", unix.NFT_PAYLOAD_NETWORK_HEADER, "inet_service", 42).requires(protoIPv6, 0)) &&
		yield(rawField("nh", unix.NFT_PAYLOAD_NETWORK_HEADER, "mark", 44).requires(protoIPv6, 0))
}

func rawField(name string, base uint32, typ string, at uint32) field {
	f := payload("", typ, base, at)
	f.name = "@" + name + "," + strconv.Itoa(int(8*at)) + "," + strconv.Itoa(8*f.typ.Size)
	return f
}
