// SPDX-License-Identifier: Apache-2.0

// Package dhcp4 is a stateless DHCP server for one guest. The lease is fixed, and Answer maps each request to at most one
// reply; the caller owns the socket. Requests come from a guest and are not trusted.
package dhcp4

import (
	"encoding/binary"
	"net/netip"

	"github.com/weft-net/weft/internal/guest/domains"
	"github.com/weft-net/weft/internal/model"
)

// Offsets in a packet (RFC 2131, 2) and option codes (RFC 2132).
const (
	ciaddr, yiaddr, giaddr, chaddr = 12, 16, 24, 28
	cookieAt, optionsAt            = 236, 240
	cookie                         = 0x63825363
	minPacket                      = 300 // as in BOOTP: some clients drop shorter packets

	optMask, optRouter, optDNS, optHostname, optDomain  = 1, 3, 6, 12, 15
	optMTU, optNTP                                      = 26, 42
	optRequested, optLease, optType, optServer          = 50, 51, 53, 54
	optMessage, optMaxSize                              = 56, 57
	optTFTP, optBootFile, optSearch, optClasslessRoutes = 66, 67, 119, 121
	optPad, optEnd                                      = 0, 255

	discover, offer, request, ack, nak, inform = 1, 2, 3, 5, 6, 8

	// leaseSeconds is the same as in KubeVirt: the guest keeps its address as long as it runs.
	leaseSeconds = 999 * 24 * 60 * 60
	// minSize is the datagram size, with headers, that every client accepts (RFC 2131, 2).
	minSize, headers = 576, 28
	maxOption        = 255
)

// Broadcast is the destination of replies to a guest that has no address yet.
func Broadcast() netip.Addr { return netip.AddrFrom4([4]byte{255, 255, 255, 255}) }

// Answer returns the reply to a packet and its destination, or nil if the packet gets no reply.
func Answer(g model.GuestConfig, packet []byte) (reply []byte, to netip.Addr) {
	q, ok := parse(packet)
	if !ok || g.DHCP4 == nil || g.MAC != "" && mac(q.packet) != g.MAC {
		return nil, netip.Addr{}
	}
	l := lease(*g.DHCP4)
	switch q.kind {
	case discover:
		return l.reply(q, offer), Broadcast()
	case inform:
		if q.client != l.Address.Addr() {
			return nil, netip.Addr{}
		}
		return l.reply(q, inform), q.client
	case request:
		return l.confirm(q)
	}
	return nil, netip.Addr{}
}

// confirm answers DHCPREQUEST: a guest selects, renews or rebinds an address.
func (l lease) confirm(q query) ([]byte, netip.Addr) {
	if q.server.IsValid() && q.server != l.Server {
		return nil, netip.Addr{} // it has chosen another server
	}
	addr := q.requested
	if !addr.IsValid() {
		addr = q.client
	}
	if addr != l.Address.Addr() {
		return l.nak(q), Broadcast()
	}
	if q.client == addr {
		return l.reply(q, ack), q.client
	}
	return l.reply(q, ack), Broadcast()
}

// query is a parsed request.
type query struct {
	packet            []byte
	kind              byte
	client            netip.Addr // ciaddr
	requested, server netip.Addr
	size              int // the maximum datagram size that the client accepts
}

// parse reads a packet; ok is false if it is not a valid request.
func parse(p []byte) (q query, ok bool) {
	const bootRequest, ethernet, macLen = 1, 1, 6
	if len(p) < optionsAt || p[0] != bootRequest || p[1] != ethernet || p[2] != macLen ||
		binary.BigEndian.Uint32(p[cookieAt:]) != cookie {
		return q, false
	}
	if [4]byte(p[giaddr:]) != [4]byte{} {
		return q, false // there is no relay between a guest and this server
	}
	q = query{packet: p, size: minSize}
	if a := [4]byte(p[ciaddr:]); a != [4]byte{} {
		q.client = netip.AddrFrom4(a)
	}
	for o := p[optionsAt:]; len(o) > 0 && o[0] != optEnd; {
		if o[0] == optPad {
			o = o[1:]
			continue
		}
		if len(o) < 2 || len(o) < 2+int(o[1]) {
			return q, false
		}
		q.option(o[0], o[2:2+int(o[1])])
		o = o[2+int(o[1]):]
	}
	return q, q.kind != 0
}

func (q *query) option(code byte, value []byte) {
	switch {
	case code == optType && len(value) == 1:
		q.kind = value[0]
	case code == optRequested && len(value) == 4:
		q.requested = netip.AddrFrom4([4]byte(value))
	case code == optServer && len(value) == 4:
		q.server = netip.AddrFrom4([4]byte(value))
	case code == optMaxSize && len(value) == 2:
		q.size = max(minSize, int(binary.BigEndian.Uint16(value)))
	}
}

// mac returns the client's MAC address.
func mac(p []byte) string {
	const hex = "0123456789abcdef"
	out := make([]byte, 0, 17)
	for i, b := range p[chaddr : chaddr+6] {
		if i > 0 {
			out = append(out, ':')
		}
		out = append(out, hex[b>>4], hex[b&15])
	}
	return string(out)
}

// lease encodes the guest's lease in replies.
type lease model.GuestDHCP4

// head returns a reply without options.
func head(q query) []byte {
	const bootReply = 2
	r := make([]byte, optionsAt, minPacket)
	copy(r, q.packet[:ciaddr]) // htype, hlen, xid, flags
	r[0], r[3], r[8], r[9] = bootReply, 0, 0, 0
	copy(r[chaddr:chaddr+16], q.packet[chaddr:])
	binary.BigEndian.PutUint32(r[cookieAt:], cookie)
	return r
}

// nak returns a DHCPNAK: the guest has the address of an earlier pod and must request a new one.
func (l lease) nak(q query) []byte {
	r := head(q)
	r = option(r, optType, []byte{nak})
	r = option(r, optServer, l.Server.AsSlice())
	r = option(r, optMessage, []byte("the address is not assigned to this VM"))
	return finish(r)
}

func finish(r []byte) []byte {
	r = append(r, optEnd)
	for len(r) < minPacket {
		r = append(r, optPad)
	}
	return r
}

// option appends an option, split into parts if it is longer than 255 bytes (RFC 3396).
func option(r []byte, code byte, value []byte) []byte {
	for len(value) > maxOption {
		r = append(append(r, code, maxOption), value[:maxOption]...)
		value = value[maxOption:]
	}
	if len(value) == 0 {
		return r
	}
	return append(append(r, code, byte(len(value))), value...)
}

func addrs(list []netip.Addr) []byte {
	var out []byte
	for _, a := range list {
		if a.Is4() {
			out = append(out, a.AsSlice()...)
		}
	}
	return out
}

// search encodes the domain search option (RFC 3397), as many domains as one option can hold.
func search(names []string) []byte { return domains.Append(nil, names, maxOption) }
