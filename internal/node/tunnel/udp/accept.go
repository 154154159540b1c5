// SPDX-License-Identifier: Apache-2.0

package udp

import (
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"
)

// Accept lists what is accepted from the peers; its zero value is nothing.
type Accept struct {
	Senders []Sender
	// Outside are sources that are accepted from any sender, except those in Cluster.
	Outside, Cluster []netip.Prefix
	// Relays are senders from which the sources of any sender are accepted, for one destination.
	Relays []Relay
}

// Relay is a sender's address, and a destination of packets.
type Relay struct{ From, To netip.Addr }

// Sender is a node's addresses, and the source prefixes that are accepted from it.
type Sender struct {
	Addrs    []netip.Addr
	Prefixes []netip.Prefix
}

// acceptor checks the sources of packets. It is immutable.
type acceptor struct {
	senders map[netip.Addr][]span
	outside anySender
	relays  map[netip.Addr][]key
}

// anySender has the sources of any sender, by family.
type anySender [2]struct{ outside, cluster, any *table }

func newAcceptor(a Accept) *acceptor {
	out := &acceptor{senders: make(map[netip.Addr][]span, len(a.Senders)), relays: map[netip.Addr][]key{}}
	for _, r := range a.Relays {
		out.relays[r.From] = append(out.relays[r.From], keyOf(r.To.AsSlice()))
	}
	var all []netip.Prefix
	for _, s := range a.Senders {
		if len(a.Relays) > 0 {
			all = append(all, s.Prefixes...)
		}
		var own [2][]span
		for _, p := range s.Prefixes {
			first, last := rangeOf(p)
			own[side(p.Addr().Is6())] = append(own[side(p.Addr().Is6())], span{first: first, last: last})
		}
		for _, addr := range s.Addrs {
			out.senders[addr] = own[side(addr.Is6())]
		}
	}
	for i := range out.outside {
		one := &out.outside[i]
		one.outside, one.cluster, one.any = tableOf(a.Outside, i == 1), tableOf(a.Cluster, i == 1), tableOf(all, i == 1)
	}
	return out
}

func side(v6 bool) int {
	if v6 {
		return 1
	}
	return 0
}

// tableOf returns a table of the prefixes of a family.
func tableOf(prefixes []netip.Prefix, v6 bool) *table {
	var peers []Peer
	for _, p := range prefixes {
		if p.Addr().Is6() == v6 {
			peers = append(peers, Peer{Prefix: p, To: netip.AddrPortFrom(p.Addr(), 0)})
		}
	}
	return newTable(peers)
}

// sender is what is accepted from one node. Its zero value may send nothing.
type sender struct {
	known bool
	v6    bool
	own   []span
	relay []key
	all   *anySender
}

// sender returns the sender with an address.
func (a *acceptor) sender(addr netip.Addr) sender {
	own, known := a.senders[addr]
	return sender{known, addr.Is6(), own, a.relays[addr], &a.outside}
}

// may reports whether a packet is accepted. A datagram's family is that of its packet.
func (s *sender) may(p *packet) bool {
	if !s.known || p.v6 != s.v6 {
		return false
	}
	k := keyOf(p.src())
	for i := range s.own {
		if !k.less(s.own[i].first) && !s.own[i].last.less(k) {
			return true
		}
	}
	all := &s.all[side(s.v6)]
	if all.outside.find(k) != nil && all.cluster.find(k) == nil {
		return true
	}
	return len(s.relay) > 0 && slices.Contains(s.relay, keyOf(p.dst())) && all.any.find(k) != nil
}

// nodeOf returns the source address of a message.
func nodeOf(name *unix.RawSockaddrInet6) netip.Addr {
	if name.Family == unix.AF_INET {
		return netip.AddrFrom4((*unix.RawSockaddrInet4)(ptr(name)).Addr)
	}
	return netip.AddrFrom16(name.Addr)
}
