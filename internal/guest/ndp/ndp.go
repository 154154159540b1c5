// SPDX-License-Identifier: Apache-2.0

// Package ndp sends router advertisements to one guest (RFC 4861). They make this end the guest's default router and refer
// it to DHCPv6 for addresses; DHCPv6 alone would leave a guest without a default route. Solicitations come from a guest
// and are not trusted. The kernel computes checksums.
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

	// Lifetime is the router lifetime in seconds.
	Lifetime = 1800
	// Interval is the time between unsolicited advertisements in seconds.
	Interval = 200

	hopLimit = 64
	// managed and other are the M and O flags: addresses and other configuration come by DHCPv6.
	managed, other = 0x80, 0x40
	onLink         = 0x80
	maxSearch      = 248
)

// AllNodes is the destination of unsolicited advertisements.
func AllNodes() netip.Addr { return netip.MustParseAddr("ff02::1") }

// Solicited reports whether a message is a valid router solicitation (RFC 4861, 6.1.1). Its hop limit must be 255: a
// router between the guest and this end would have decremented it.
func Solicited(message []byte, from netip.Addr, hops int) bool {
	const header, maxHops = 8, 255
	if len(message) < header || message[0] != solicitation || message[1] != 0 || hops != maxHops {
		return false
	}
	for o := message[header:]; len(o) > 0; {
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

// Advertisement returns the router advertisement for a guest, or nil if it gets none. Lifetime 0 withdraws the router.
func Advertisement(g model.GuestConfig, lifetime uint16) []byte {
	if g.RA == nil {
		return nil
	}
	ra := *g.RA
	out := []byte{advertisement, 0, 0, 0, hopLimit, managed | other}
	router := lifetime
	if ra.NoRouter {
		router = 0
	}
	out = binary.BigEndian.AppendUint16(out, router)
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
	return append(out, dnsOptions(ra, uint32(lifetime))...)
}

// dnsOptions returns the RDNSS and DNSSL options (RFC 8106).
func dnsOptions(ra model.GuestRA, lifetime uint32) []byte {
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
	if search := domains.Append(nil, ra.Search, maxSearch); len(search) > 0 {
		for len(search)%8 != 0 {
			search = append(search, 0)
		}
		out = append(out, optSearch, byte(1+len(search)/8), 0, 0)
		out = append(binary.BigEndian.AppendUint32(out, lifetime), search...)
	}
	return out
}
