// SPDX-License-Identifier: Apache-2.0

// Package dhcp4 is a DHCP server for one guest: its one lease is a value, and to each packet there is one answer or
// none. It remembers nothing and does nothing; whoever has a socket carries the answers. What it reads comes from a
// guest, who may write anything.
package dhcp4

import (
	"encoding/binary"
	"net/netip"

	"github.com/weft-net/weft/internal/guest/domains"
	"github.com/weft-net/weft/internal/model"
)

// Where things are in a packet (RFC 2131, 2), and the words of options (RFC 2132).
const (
	ciaddr, yiaddr, giaddr, chaddr = 12, 16, 24, 28
	cookieAt, optionsAt            = 236, 240
	cookie                         = 0x63825363
	leastPacket                    = 300 // BOOTP's: some clients take no shorter one

	optMask, optRouter, optDNS, optHostname, optDomain = 1, 3, 6, 12, 15
	optMTU, optNTP                                     = 26, 42
	optRequested, optLease, optType, optServer         = 50, 51, 53, 54
	optMessage, optMaxSize                             = 56, 57
	optTFTP, optBootFile, optSearch, optRoutes         = 66, 67, 119, 121
	optPad, optEnd                                     = 0, 255

	discover, offer, request, ack, nak, inform = 1, 2, 3, 5, 6, 8

	// leaseSeconds is KubeVirt's: the guest has the address for as long as it runs.
	leaseSeconds = 999 * 24 * 60 * 60
	// leastSize is what each client takes (RFC 2131, 2), of a datagram with its headers.
	leastSize, headers = 576, 28
	longest            = 255
)

// Broadcast is where an answer goes whose guest has no address yet.
func Broadcast() netip.Addr { return netip.AddrFrom4([4]byte{255, 255, 255, 255}) }

// Answer is the answer to a packet and the address that it goes to; nil is none.
func Answer(g model.Guest, packet []byte) (reply []byte, to netip.Addr) {
	q, ok := parse(packet)
	if !ok || g.DHCP4 == nil || g.MAC != "" && mac(q.packet) != g.MAC {
		return nil, netip.Addr{}
	}
	l := *g.DHCP4
	switch q.kind {
	case discover:
		return l4(l).lease(q, offer), Broadcast()
	case inform:
		if q.client != l.Address.Addr() {
			return nil, netip.Addr{}
		}
		return l4(l).lease(q, inform), q.client
	case request:
		return l4(l).confirm(q)
	}
	return nil, netip.Addr{}
}

// confirm answers a guest that wants to have an address, or to keep one.
func (l l4) confirm(q query) ([]byte, netip.Addr) {
	if q.server.IsValid() && q.server != l.Server {
		return nil, netip.Addr{} // it has chosen another server
	}
	wants := q.requested
	if !wants.IsValid() {
		wants = q.client
	}
	if wants != l.Address.Addr() {
		return l.refuse(q), Broadcast()
	}
	if q.client == wants {
		return l.lease(q, ack), q.client
	}
	return l.lease(q, ack), Broadcast()
}

// query is what counts of a packet.
type query struct {
	packet            []byte
	kind              byte
	client            netip.Addr // the address that it has
	requested, server netip.Addr
	size              int // of the longest datagram that it takes
}

// parse reads a packet; ok is false when nobody can answer it.
func parse(p []byte) (q query, ok bool) {
	const bootRequest, ethernet, macLen = 1, 1, 6
	if len(p) < optionsAt || p[0] != bootRequest || p[1] != ethernet || p[2] != macLen ||
		binary.BigEndian.Uint32(p[cookieAt:]) != cookie {
		return q, false
	}
	if [4]byte(p[giaddr:]) != [4]byte{} {
		return q, false // on the guest's own wire is no relay
	}
	q = query{packet: p, size: leastSize}
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
		q.size = max(leastSize, int(binary.BigEndian.Uint16(value)))
	}
}

// mac is the address of who asks.
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

// l4 is a lease that is written into packets.
type l4 model.GuestDHCP4

// head is a packet that answers another one, without options.
func head(q query) []byte {
	const bootReply = 2
	r := make([]byte, optionsAt, leastPacket)
	copy(r, q.packet[:ciaddr]) // kind of hardware, transaction, flags
	r[0], r[3], r[8], r[9] = bootReply, 0, 0, 0
	copy(r[chaddr:chaddr+16], q.packet[chaddr:])
	binary.BigEndian.PutUint32(r[cookieAt:], cookie)
	return r
}

// refuse has the guest forget an address and ask anew: it has one of a pod before.
func (l l4) refuse(q query) []byte {
	r := head(q)
	r = option(r, optType, []byte{nak})
	r = option(r, optServer, l.Server.AsSlice())
	r = option(r, optMessage, []byte("the address is not this machine's"))
	return finish(r)
}

func finish(r []byte) []byte {
	r = append(r, optEnd)
	for len(r) < leastPacket {
		r = append(r, optPad)
	}
	return r
}

// option appends an option. One that is longer than its length can say stands there in parts (RFC 3396).
func option(r []byte, code byte, value []byte) []byte {
	for len(value) > longest {
		r = append(append(r, code, longest), value[:longest]...)
		value = value[longest:]
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

// search is the option of domains to search (RFC 3397): what one option holds of them.
func search(names []string) []byte { return domains.Append(nil, names, longest) }
