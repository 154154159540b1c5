// SPDX-License-Identifier: Apache-2.0

// Package watch receives the kernel's notifications about changes to links, addresses and routes of a network
// namespace, whichever process made them. They are a reason to read again, not a source of state: a notification may be
// out of date when it is received.
package watch

import (
	"context"
	"encoding/binary"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/kernel/netlink"
	"github.com/weft-net/weft/internal/netns"
)

// Kind is the kind of object that changed.
type Kind int

// The kinds.
const (
	// Lost: the kernel dropped notifications because the buffer was full; anything may have changed.
	Lost Kind = iota
	Link
	Addr
	Route
	// Neigh is an entry of a neighbor table, or of the forwarding table of a device.
	Neigh
	// Forwarding is the setting that enables forwarding for a family.
	Forwarding
)

// Event is a notification about one change.
type Event struct {
	Kind Kind
	Gone bool
	// Link is the link's name, for links, addresses, neighbors and routes with a metric; "" for objects on a deleted
	// link.
	Link string
	// Addr is the address; a neighbor's own, a forwarding entry's VTEP.
	Addr netip.Addr
	// Protocol, Metric, Table, Dst and Gw are those of a route.
	Protocol uint8
	Metric   uint32
	Table    uint32
	Dst      netip.Prefix
	Gw       netip.Addr
	// MAC is a neighbor's. Permanent means that a program added it, Bridge that it is a forwarding entry of a device.
	MAC       [6]byte
	Permanent bool
	Bridge    bool
}

// Events opens a socket in ns (nil: the process's own namespace) and puts a token into the channel, which holds one, for
// a notification that keep selects. The channel is closed after ctx ends. keep is called from one goroutine.
func Events(ctx context.Context, ns *netns.NS, keep func(Event) bool) (<-chan struct{}, error) {
	tokens := make(chan struct{}, 1)
	l, err := netlink.Listen(ctx, ns, netlink.Subscription{
		Protocol: unix.NETLINK_ROUTE,
		Groups:   links() | netlink.Group(unix.RTNLGRP_IPV4_NETCONF) | netlink.Group(unix.RTNLGRP_IPV6_NETCONF),
		Buffer:   burst, Size: datagramSize, Batch: batch, Gather: gather,
	}, func(l *netlink.Listener, d netlink.Datagram) {
		wanted := d.Lost && keep(Event{Kind: Lost})
		whole := netlink.Messages(d.Data, func(a netlink.Answer) {
			if s, ok := parse(a, l.LinkName); ok && !wanted {
				wanted = keep(s)
			}
		})
		if wanted || !whole && keep(Event{Kind: Lost}) {
			notify(tokens)
		}
	})
	if err != nil {
		return nil, fmt.Errorf("watch: %w", err)
	}
	closeAfter(l, tokens)
	return tokens, nil
}

// burst is a buffer size for simultaneous notifications about all pods of a node.
const burst = 1 << 20

const (
	// batch is how many notifications one system call reads: an attachment causes six about its links.
	batch = 8
	// gather is how long a notification waits for others, so that an attachment costs one wakeup.
	gather = 10 * time.Millisecond
)

// links returns the groups of links, and of objects on them.
func links() uint32 {
	return netlink.Group(unix.RTNLGRP_LINK) | netlink.Group(unix.RTNLGRP_IPV4_IFADDR) |
		netlink.Group(unix.RTNLGRP_IPV6_IFADDR) |
		netlink.Group(unix.RTNLGRP_IPV4_ROUTE) | netlink.Group(unix.RTNLGRP_IPV6_ROUTE) | netlink.Group(unix.RTNLGRP_NEIGH)
}

// parse decodes one message; false for one of another kind. name returns the name of a link.
func parse(m netlink.Answer, name func(index int) string) (Event, bool) {
	var s Event
	header := 0
	switch m.Kind {
	case unix.RTM_NEWLINK, unix.RTM_DELLINK:
		s.Kind, s.Gone, header = Link, m.Kind == unix.RTM_DELLINK, unix.SizeofIfInfomsg
	case unix.RTM_NEWADDR, unix.RTM_DELADDR:
		s.Kind, s.Gone, header = Addr, m.Kind == unix.RTM_DELADDR, unix.SizeofIfAddrmsg
		if len(m.Body) < header {
			return s, false
		}
		s.Link = name(int(binary.NativeEndian.Uint32(m.Body[4:]))) // struct ifaddrmsg
	case unix.RTM_NEWROUTE, unix.RTM_DELROUTE:
		s.Kind, s.Gone, header = Route, m.Kind == unix.RTM_DELROUTE, unix.SizeofRtMsg
		if len(m.Body) < header {
			return s, false
		}
		s.Table, s.Protocol = uint32(m.Body[4]), m.Body[5] // struct rtmsg
	case unix.RTM_NEWNEIGH, unix.RTM_DELNEIGH:
		s.Kind, s.Gone = Neigh, m.Kind == unix.RTM_DELNEIGH
		if len(m.Body) < unix.SizeofNdMsg {
			return s, false
		}
		s.takeNeigh(m.Body, name)
		return s, true
	case unix.RTM_NEWNETCONF:
		s.Kind = Forwarding
		return s, forwarding(m.Body)
	default:
		return s, false
	}
	if len(m.Body) < header {
		return Event{Kind: Lost}, true
	}
	if s.Kind == Route {
		s.takeRoute(m.Body, name)
	}
	for kind, value := range netlink.Attrs(m.Body[header:]) {
		s.take(kind, value)
	}
	return s, true
}

// take decodes one attribute.
func (s *Event) take(kind uint16, value []byte) {
	switch {
	case s.Kind == Link && kind == unix.IFLA_IFNAME:
		s.Link = netlink.String(value)
	case s.Kind == Addr && (kind == unix.IFA_LOCAL || kind == unix.IFA_ADDRESS && !s.Addr.IsValid()):
		s.Addr, _ = netip.AddrFromSlice(value)
	case s.Kind == Route && kind == unix.RTA_TABLE:
		s.Table = netlink.Uint32(value)
	}
}

// forwarding reports whether a message of settings (struct netconfmsg and attributes) is about forwarding on all links.
func forwarding(b []byte) bool {
	const head, ifindex, switched = 4, 1, 2 // NETCONFA_IFINDEX, NETCONFA_FORWARDING
	const all = ^uint32(0)                  // NETCONFA_IFINDEX_ALL
	b = b[min(head, len(b)):]
	return netlink.Uint32(netlink.Find(b, ifindex)) == all && len(netlink.Find(b, switched)) >= 4
}
