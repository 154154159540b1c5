// SPDX-License-Identifier: Apache-2.0

// Package dhcp6 is a DHCPv6 server for one guest (RFC 8415): its one lease is a value, and to each message there is one
// answer or none. It remembers nothing and does nothing. What it reads comes from a guest, who may write anything.
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

	// leaseSeconds is KubeVirt's: the guest has the address for as long as it runs.
	leaseSeconds = 999 * 24 * 60 * 60
	// mostIdentities bounds an answer: a guest has few interfaces and asks for few things.
	mostIdentities = 8
	mostDUID       = 130
	mostSearch     = 255
)

// Answer is the answer to a message, which goes to where that came from; nil is none.
func Answer(g model.Guest, message []byte) []byte {
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

// query is what counts of a message.
type query struct {
	kind           byte
	client, server []byte
	rapid          bool
	// identities are what the guest wants addresses or prefixes for, with the addresses that it names.
	identities []identity
}

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
		case code == optClient && len(value) <= mostDUID:
			q.client = value
		case code == optServer:
			q.server = append([]byte{}, value...)
		case code == optRapid:
			q.rapid = true
		case (code == optIANA || code == optIAPD) && len(value) >= 12, code == optIATA && len(value) >= 4:
			if len(q.identities) < mostIdentities {
				q.identities = append(q.identities, identityOf(code, value))
			}
		}
	})
	return q, ok
}

// each calls f with each option; false when what stands there is none.
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
		if code == optIAAddr && len(value) >= 24 && len(i.addrs) < mostIdentities {
			i.addrs = append(i.addrs, netip.AddrFrom16([16]byte(value)))
		}
	})
	return i
}

// lease is the lease with the answer that is being written.
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

// answer writes what a kind of message wants to hear.
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
			l.out = append(l.out, status(notOnLink, "the address is not this machine's")...)
		}
		return l.out
	case release, decline:
		l.out = append(l.out, status(success, "")...)
		return l.out
	case informationRequest:
	default:
		return nil
	}
	l.rest()
	return l.out
}

// holds tells whether the guest names addresses, and whether all of them are its.
func (l *lease) holds(q query) (named, all bool) {
	all = true
	for _, i := range q.identities {
		for _, a := range i.addrs {
			named, all = true, all && a == l.Address
		}
	}
	return named, all
}

// identities gives the address to the first that wants one, and nothing to others. What else a guest believes to have
// it is told to forget.
func (l *lease) identities(q query) {
	given := false
	for _, i := range q.identities {
		body := append([]byte{}, i.id...)
		if i.kind != optIATA {
			body = append(body, make([]byte, 8)...) // when to renew is the guest's choice
		}
		switch {
		case i.kind == optIAPD:
			body = append(body, status(noPrefix, "there are no prefixes")...)
		case i.kind == optIATA || given:
			body = append(body, status(noAddrs, "there is one address")...)
		default:
			given = true
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

// rest is what every guest is told.
func (l *lease) rest() {
	var servers []byte
	for _, s := range l.DNS {
		if s.Is6() {
			servers = append(servers, s.AsSlice()...)
		}
	}
	if len(servers) > 0 {
		l.option(optDNS, servers)
	}
	if search := domains.Append(nil, l.Search, mostSearch); len(search) > 0 {
		l.option(optSearch, search)
	}
}
