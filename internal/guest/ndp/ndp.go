// SPDX-License-Identifier: Apache-2.0

// Package ndp is a router for one guest (RFC 4861): what it advertises is a value. It says that the way out is here and
// that addresses come by DHCPv6; without that a guest has an address and no route. What it reads comes from a guest,
// who may write anything. Checksums are the kernel's.
package ndp

import (
	"encoding/binary"
	"net"
	"net/netip"

	"github.com/weft-net/weft/internal/guest/domains"
	"github.com/weft-net/weft/internal/model"
)

const (
	solicitation, advertisement = 133, 134

	optSource, optPrefix, optMTU, optDNS, optSearch = 1, 3, 5, 25, 31

	// Lifetime is for how many seconds an advertisement holds.
	Lifetime = 1800
	// Interval is after how many seconds another one is due.
	Interval = 200

	hopLimit = 64
	// managed and other tell the guest to ask by DHCPv6 for addresses and for the rest.
	managed, other = 0x80, 0x40
	onLink         = 0x80
	mostSearch     = 248
)

// AllNodes is where advertisements go that nobody asked for.
func AllNodes() netip.Addr { return netip.MustParseAddr("ff02::1") }

// Solicited tells whether a message that came from an address asks for an advertisement (RFC 4861, 6.1.1). The hop
// limit, which is 255 where no router was on the way, is for the caller's socket to know.
func Solicited(message []byte, from netip.Addr, hops int) bool {
	const least, farthest = 8, 255
	if len(message) < least || message[0] != solicitation || message[1] != 0 || hops != farthest {
		return false
	}
	for o := message[least:]; len(o) > 0; {
		if len(o) < 2 || o[1] == 0 || len(o) < 8*int(o[1]) {
			return false
		}
		if o[0] == optSource && from.IsUnspecified() {
			return false
		}
		o = o[8*int(o[1]):]
	}
	return true
}

// Advertisement is what the guest is told. Lifetime 0 takes it back: the router is about to go.
func Advertisement(g model.Guest, lifetime uint16) []byte {
	if g.RA == nil {
		return nil
	}
	ra := *g.RA
	out := []byte{advertisement, 0, 0, 0, hopLimit, managed | other}
	out = binary.BigEndian.AppendUint16(out, lifetime)
	out = append(out, make([]byte, 8)...) // reachable and retransmission times are the guest's choice
	if mac, err := net.ParseMAC(g.LinkMAC); err == nil && len(mac) == 6 {
		out = append(append(out, optSource, 1), mac...)
	}
	out = binary.BigEndian.AppendUint32(append(out, optMTU, 1, 0, 0), uint32(ra.MTU))
	if ra.Prefix.IsValid() && ra.Prefix.Addr().Is6() {
		out = append(out, optPrefix, 4, byte(ra.Prefix.Bits()), onLink)
		out = binary.BigEndian.AppendUint32(out, 1<<32-1)
		out = binary.BigEndian.AppendUint32(out, 1<<32-1)
		out = append(append(out, 0, 0, 0, 0), ra.Prefix.Masked().Addr().AsSlice()...)
	}
	return append(out, names(ra, uint32(lifetime))...)
}

// names are the options of RFC 8106.
func names(ra model.GuestRA, lifetime uint32) []byte {
	var servers, out []byte
	for _, s := range ra.DNS {
		if s.Is6() && len(servers) < 16*100 {
			servers = append(servers, s.AsSlice()...)
		}
	}
	if len(servers) > 0 {
		out = append(out, optDNS, byte(1+len(servers)/8), 0, 0)
		out = append(binary.BigEndian.AppendUint32(out, lifetime), servers...)
	}
	if search := domains.Append(nil, ra.Search, mostSearch); len(search) > 0 {
		for len(search)%8 != 0 {
			search = append(search, 0)
		}
		out = append(out, optSearch, byte(1+len(search)/8), 0, 0)
		out = append(binary.BigEndian.AppendUint32(out, lifetime), search...)
	}
	return out
}
