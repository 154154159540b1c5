// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"context"
	"encoding/binary"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/kernel/netlink"
	"github.com/weft-net/weft/internal/netns"
)

// OwnNamespace is the NSID of a change in the namespace of the watching socket itself.
const OwnNamespace = netlink.OwnNamespace

// Change is a sign that something in a namespace was taken away, switched off or overwritten.
type Change struct {
	Sign
	// NSID is the id by which the namespace of the watching socket knows the one in which the change was made.
	NSID int
	// Index is the link's index, for links, addresses, neighbors, queues and settings.
	Index int
	// Down: the link is not up. Freed: it has no master. MTU is in bytes, 0 where the message names none.
	Down, Freed bool
	MTU         int
}

// Further kinds of changes, which Signs does not report.
const (
	// Rule is a policy routing rule.
	Rule Kind = Forwarding + 1 + iota
	// Queue is a qdisc or a filter of a link.
	Queue
	// Setting is one setting of a link (forwarding, rp_filter, proxy_arp).
	Setting
	// Namespace: the id NSID is no namespace's any more, or that of another one.
	Namespace
)

// Scope says which changes are reported.
type Scope struct {
	// Port is the netlink port of the owner's socket, whose requests are not reported; 0 reports all.
	Port uint32
	// Others reports the changes in all other namespaces that have an id in the watched one, instead of those in the
	// watched one. It holds no reference to them: they end as if there were no watch. It needs CAP_NET_BROADCAST in their
	// user namespaces.
	Others bool
}

// Changes opens a socket in ns (nil: the process's own namespace) and calls heard for each change, from one goroutine.
// The channel is closed when that has ended, after ctx. The kernel filters: what is only made wakes no process.
func Changes(ctx context.Context, ns *netns.NS, scope Scope, heard func(Change)) (<-chan struct{}, error) {
	groups := links() | netlink.Group(unix.RTNLGRP_IPV4_RULE) | netlink.Group(unix.RTNLGRP_IPV6_RULE) |
		netlink.Group(unix.RTNLGRP_TC)
	if scope.Others {
		groups |= netlink.Group(unix.RTNLGRP_NSID)
	} else {
		groups |= netlink.Group(unix.RTNLGRP_IPV4_NETCONF) | netlink.Group(unix.RTNLGRP_IPV6_NETCONF)
	}
	l, err := netlink.Listen(ctx, ns, netlink.Subscription{
		Protocol: unix.NETLINK_ROUTE, Groups: groups, Filter: scope.filter(), Buffer: burst, Namespaces: scope.Others,
		Size: datagramSize,
	}, func(l *netlink.Listener, d netlink.Datagram) { scope.receive(l, d, heard) })
	if err != nil {
		return nil, fmt.Errorf("watch: %w", err)
	}
	return l.Done(), nil
}

func (s Scope) receive(l *netlink.Listener, d netlink.Datagram, heard func(Change)) {
	name := l.LinkName
	if s.Others {
		name = func(int) string { return "" } // the index is another namespace's
	}
	whole := netlink.Messages(d.Data, func(m netlink.Answer) {
		if c, ok := parseChange(m, d.NSID, name); ok && (c.Kind == Namespace || s.Others == (d.NSID != OwnNamespace)) {
			heard(c)
		}
	})
	if d.Lost || !whole {
		heard(Change{Sign: Sign{Kind: Lost}, NSID: OwnNamespace})
	}
}

// parseChange reads one message that the filter let through.
func parseChange(m netlink.Answer, nsid int, name func(int) string) (Change, bool) {
	c := Change{NSID: nsid}
	index := func(at int) bool {
		if len(m.Body) < at+4 {
			return false
		}
		c.Index = int(int32(binary.NativeEndian.Uint32(m.Body[at:])))
		return true
	}
	switch m.Kind {
	case unix.RTM_DELNSID:
		c.Kind = Namespace
		return c, c.takeNSID(m.Body)
	case unix.RTM_DELRULE:
		c.Kind, c.Gone = Rule, true
		return c, true
	case unix.RTM_DELQDISC, unix.RTM_DELTFILTER:
		c.Kind, c.Gone = Queue, true
		ok := index(4) // struct tcmsg
		c.Link = name(c.Index)
		return c, ok
	case unix.RTM_NEWNETCONF:
		c.Kind = Setting
		return c, c.takeSetting(m.Body, name)
	}
	var ok bool
	if c.Sign, ok = parse(m, name); !ok {
		return c, false
	}
	if ok = index(4); c.Kind == Link && ok {
		c.takeLink(m)
	}
	return c, ok
}

// takeLink reads struct ifinfomsg and what follows.
func (c *Change) takeLink(m netlink.Answer) {
	if len(m.Body) < unix.SizeofIfInfomsg {
		return
	}
	c.Down = binary.NativeEndian.Uint32(m.Body[8:])&unix.IFF_UP == 0
	c.Freed = m.Body[0] != unix.AF_BRIDGE
	for kind, data := range netlink.Attrs(m.Body[unix.SizeofIfInfomsg:]) {
		switch {
		case kind == unix.IFLA_MASTER:
			c.Freed = false
		case kind == unix.IFLA_MTU && len(data) == 4:
			c.MTU = int(binary.NativeEndian.Uint32(data))
		case kind == unix.IFLA_ADDRESS && len(data) == len(c.MAC):
			c.MAC = [6]byte(data)
		}
	}
}

func (c *Change) takeNSID(data []byte) bool {
	const head, nsid = 4, 1 // struct rtgenmsg, aligned; NETNSA_NSID
	found := false
	for kind, data := range netlink.Attrs(data[min(head, len(data)):]) {
		if kind == nsid && len(data) == 4 {
			c.NSID, found = int(int32(binary.NativeEndian.Uint32(data))), true
		}
	}
	return found
}

// takeSetting reads struct netconfmsg: a message with all settings of a link says that the link is new.
func (c *Change) takeSetting(data []byte, name func(int) string) bool {
	const head, ifindex = 4, 1 // NETCONFA_IFINDEX
	settings := 0
	for kind, data := range netlink.Attrs(data[min(head, len(data)):]) {
		if kind == ifindex && len(data) == 4 {
			c.Index = int(int32(binary.NativeEndian.Uint32(data)))
		} else {
			settings++
		}
	}
	if c.Index <= 0 || settings != 1 {
		return false
	}
	c.Link = name(c.Index)
	return true
}

// Place is the prefix of a route or the address of a neighbor that has changed.
func (c Change) Place() netip.Prefix {
	if c.Kind == Route {
		return c.Dst
	}
	return netip.PrefixFrom(c.Addr, c.Addr.BitLen())
}
