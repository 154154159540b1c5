// SPDX-License-Identifier: Apache-2.0

// Package dhcp6 is a stateless DHCPv6 server for one guest (RFC 8415). The lease is fixed, and Answer maps each message to
// at most one reply; the caller owns the socket. Messages come from a guest and are not trusted.
package dhcp6

import (
	"bytes"
	"encoding/binary"
	"net"
	"net/netip"

	"github.com/weft-net/weft/internal/guest/domains"
	"github.com/weft-net/weft/internal/model"
)

const (
	solicit, advertise, request, confirm, renew, rebind = 1, 2, 3, 4, 5, 6
	reply, release, decline, informationRequest         = 7, 8, 9, 11

	optClient, optServer, optIANA, optIATA, optIAAddr = 1, 2, 3, 4, 5
	optStatus, optRapid, optDNS, optSearch, optIAPD   = 13, 14, 23, 24, 25

	success, noAddrs, notOnLink, noPrefix = 0, 2, 4, 6

	// leaseSeconds is the same as in KubeVirt: the guest keeps its address as long as it runs.
	leaseSeconds = 999 * 24 * 60 * 60
	// maxIdentities bounds the size of a reply: a guest needs few identity associations.
	maxIdentities = 8
	maxDUID       = 130
	maxSearch     = 255
)

// Answer returns the reply to a message, for the message's source, or nil if the message gets no reply.
func Answer(g model.GuestConfig, message []byte) []byte {
	q, ok := parse(message)
	own, err := net.ParseMAC(g.LinkMAC)
	if !ok || g.DHCP6 == nil || err != nil || len(own) != 6 {
		return nil
	}
	duid := append([]byte{0, 3, 0, 1}, own...) // DUID-LL of Ethernet
	chosen := q.server != nil
	if chosen && !bytes.Equal(q.server, duid) || len(q.client) == 0 && q.kind != informationRequest {
		return nil
	}
	l := lease{GuestDHCP6: *g.DHCP6, out: append([]byte{reply}, message[1:4]...)}
	if len(q.client) > 0 {
		l.option(optClient, q.client)
	}
	l.option(optServer, duid)
	switch q.kind {
	case solicit, confirm, rebind:
		if chosen {
			return nil
		}
	case request, renew, release, decline:
		if !chosen {
			return nil
		}
	}
	return l.answer(q)
}

// query is a parsed message.
type query struct {
	kind           byte
	client, server []byte
	rapid          bool
	// identities are the guest's identity associations.
	identities []identity
}

// identity is an identity association (IA_NA, IA_TA or IA_PD) with the addresses that the guest lists in it.
type identity struct {
	kind  uint16
	id    []byte // four bytes
	addrs []netip.Addr
}

func parse(m []byte) (q query, ok bool) {
	const head = 4
	if len(m) < head {
		return q, false
	}
	q.kind = m[0]
	ok = each(m[head:], func(code uint16, value []byte) {
		switch {
		case code == optClient && len(value) <= maxDUID:
			q.client = value
		case code == optServer:
			q.server = append([]byte{}, value...)
		case code == optRapid:
			q.rapid = true
		case (code == optIANA || code == optIAPD) && len(value) >= 12, code == optIATA && len(value) >= 4:
			if len(q.identities) < maxIdentities {
				q.identities = append(q.identities, identityOf(code, value))
			}
		}
	})
	return q, ok
}

// each calls f with each option; it returns false if the options are malformed.
func each(o []byte, f func(code uint16, value []byte)) bool {
	for len(o) > 0 {
		if len(o) < 4 {
			return false
		}
		code, n := binary.BigEndian.Uint16(o), int(binary.BigEndian.Uint16(o[2:]))
		if len(o) < 4+n {
			return false
		}
		f(code, o[4:4+n])
		o = o[4+n:]
	}
	return true
}

func identityOf(code uint16, value []byte) identity {
	i := identity{kind: code, id: value[:4]}
	inner := value[4:]
	if code != optIATA {
		inner = value[12:]
	}
	each(inner, func(code uint16, value []byte) {
		if code == optIAAddr && len(value) >= 24 && len(i.addrs) < maxIdentities {
			i.addrs = append(i.addrs, netip.AddrFrom16([16]byte(value)))
		}
	})
	return i
}

// lease is the guest's lease and the reply that is being built.
type lease struct {
	model.GuestDHCP6
	out []byte
}

func (l *lease) option(code uint16, value []byte) { l.out = append(l.out, option(code, value)...) }

func option(code uint16, value []byte) []byte {
	out := binary.BigEndian.AppendUint16(nil, code)
	return append(binary.BigEndian.AppendUint16(out, uint16(len(value))), value...)
}

func status(code uint16, message string) []byte {
	return option(optStatus, append(binary.BigEndian.AppendUint16(nil, code), message...))
}

// answer builds the reply to a message by its type.
func (l *lease) answer(q query) []byte {
	switch q.kind {
	case solicit:
		if l.out[0] = advertise; q.rapid {
			l.out[0] = reply
			l.option(optRapid, nil)
		}
		l.identities(q)
	case request, renew, rebind:
		l.identities(q)
	case confirm:
		named, all := l.holds(q)
		switch {
		case !named:
			return nil
		case all:
			l.out = append(l.out, status(success, "")...)
		default:
			l.out = append(l.out, status(notOnLink, "the address is not assigned to this VM")...)
		}
		return l.out
	case release, decline:
		l.out = append(l.out, status(success, "")...)
		return l.out
	case informationRequest:
	default:
		return nil
	}
	l.dnsOptions()
	return l.out
}

// holds reports whether the guest lists addresses, and whether all of them are its own.
func (l *lease) holds(q query) (named, all bool) {
	all = true
	for _, i := range q.identities {
		for _, a := range i.addrs {
			named, all = true, all && a == l.Address
		}
	}
	return named, all
}

// identities assigns the address to the first IA_NA and refuses the other associations. Other addresses that the guest
// lists get lifetime 0, so that it removes them.
func (l *lease) identities(q query) {
	assigned := false
	for _, i := range q.identities {
		body := append([]byte{}, i.id...)
		if i.kind != optIATA {
			body = append(body, make([]byte, 8)...) // T1 and T2: the guest chooses when to renew
		}
		switch {
		case i.kind == optIAPD:
			body = append(body, status(noPrefix, "there are no prefixes")...)
		case i.kind == optIATA || assigned:
			body = append(body, status(noAddrs, "there is one address")...)
		default:
			assigned = true
			body = append(body, address(l.Address, leaseSeconds)...)
			for _, a := range i.addrs {
				if a != l.Address {
					body = append(body, address(a, 0)...)
				}
			}
		}
		l.option(i.kind, body)
	}
}

func address(a netip.Addr, seconds uint32) []byte {
	value := binary.BigEndian.AppendUint32(a.AsSlice(), seconds)
	return option(optIAAddr, binary.BigEndian.AppendUint32(value, seconds))
}

// dnsOptions appends the DNS servers and the search domains.
func (l *lease) dnsOptions() {
	var servers []byte
	for _, s := range l.DNS {
		if s.Is6() {
			servers = append(servers, s.AsSlice()...)
		}
	}
	if len(servers) > 0 {
		l.option(optDNS, servers)
	}
	if search := domains.Append(nil, l.Search, maxSearch); len(search) > 0 {
		l.option(optSearch, search)
	}
}
