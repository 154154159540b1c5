// SPDX-License-Identifier: Apache-2.0

package lang

import (
	"strconv"

	"golang.org/x/sys/unix"
)

// requires says of which protocols a packet must be before the field means anything.
func (f field) requires(l3, l4 byte) field {
	f.l3, f.l4 = l3, l4
	return f
}

// rawFields are parts of packets that nft has no words for but "@BASE,BIT,BITS": of the packet that an error quotes
// behind its own eight bytes of head, of what a tunnel's packet carries, and of the fragment head behind IPv6's. nft
// itself, should it load a rule of ours, wants sets of whole numbers for them.
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
