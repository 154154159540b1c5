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

// Change is a notification that something in a namespace was deleted, disabled or overwritten.
type Change struct {
	Event
	// NSID is the id, in the watching socket's namespace, of the namespace that changed.
	NSID int
	// Index is the link's index, for links, addresses, neighbors, queues and settings.
	Index int
	// Down: the link is not up. Freed: it has no master. MTU is in bytes, 0 when the message has none.
	Down, Freed bool
	MTU         int
	// Port: the message is about the link as a bridge's port, with its settings, nil if they are not in it, and VLANs.
	Port              bool
	Hairpin, Isolated *bool
	// NftTable is the name of an nft table.
	NftTable string
	// Qdisc is the kind of a queueing discipline, "ingress" also for a filter of arriving packets; empty for other filters.
	Qdisc string
	// Sysctl and Value are a setting as sysctl names it, with slashes, and its new value.
	Sysctl string
	Value  int
	// From is the source of a policy routing rule, whose priority is Metric and whose destination is Dst; invalid if it
	// has none.
	From netip.Prefix
}

// Further kinds of changes, which Events does not report.
const (
	// Rule is a policy routing rule.
	Rule Kind = Forwarding + 1 + iota
	// Queue is a qdisc or a filter of a link; a qdisc that is not Gone was added or changed.
	Queue
	// Setting is one setting of a link (forwarding, rp_filter, proxy_arp).
	Setting
	// Namespace: the id NSID is no longer assigned, or to another namespace.
	Namespace
	// NftTable is an nft table, which TableChanges reports.
	NftTable
)

// Scope selects the changes that are reported.
type Scope struct {
	// Port is the netlink port of the owner's socket, whose own changes are not reported; 0 reports all.
	Port uint32
	// Others reports the changes in all other namespaces that have an id in the watched one, instead of those in the
	// watched one. It does not reference them, so their lifetime does not change. It needs CAP_NET_BROADCAST in their
	// user namespaces.
	Others bool
}

// Changes opens a socket in ns (nil: the process's own namespace) and calls heard for each change, from one goroutine.
// The channel is closed when that goroutine has ended, after ctx. The kernel filters: mere additions wake no process.
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
		Size: datagramSize, Batch: batch, Gather: gather,
	}, func(l *netlink.Listener, d netlink.Datagram) { scope.receive(l, d, heard) })
	if err != nil {
		return nil, fmt.Errorf("watch: %w", err)
	}
	return l.Done(), nil
}

func (s Scope) receive(l *netlink.Listener, d netlink.Datagram, heard func(Change)) {
	name := l.LinkName
	if s.Others {
		name = func(int) string { return "" } // the index belongs to another namespace
	}
	whole := netlink.Messages(d.Data, func(m netlink.Answer) {
		if c, ok := parseChange(m, d.NSID, name); ok && (c.Kind == Namespace || s.Others == (d.NSID != OwnNamespace)) {
			heard(c)
		}
	})
	if d.Lost || !whole {
		heard(Change{Event: Event{Kind: Lost}, NSID: OwnNamespace})
	}
}

// parseChange decodes one message that the filter passed.
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
		c.takeRule(m.Body)
		return c, true
	case unix.RTM_NEWQDISC, unix.RTM_DELQDISC, unix.RTM_DELTFILTER:
		c.Kind, c.Gone = Queue, m.Kind != unix.RTM_NEWQDISC
		ok := index(4) // struct tcmsg
		c.Link = name(c.Index)
		c.takeQueue(m)
		return c, ok
	case unix.RTM_NEWNETCONF:
		c.Kind = Setting
		return c, c.takeSetting(m.Body, name)
	}
	var ok bool
	if c.Event, ok = parse(m, name); !ok {
		return c, false
	}
	if ok = index(4); c.Kind == Link && ok {
		c.takeLink(m)
	}
	return c, ok
}

// takeLink decodes struct ifinfomsg and the attributes.
func (c *Change) takeLink(m netlink.Answer) {
	if len(m.Body) < unix.SizeofIfInfomsg {
		return
	}
	c.Down = binary.NativeEndian.Uint32(m.Body[8:])&unix.IFF_UP == 0
	c.Port = m.Body[0] == unix.AF_BRIDGE
	c.Freed = !c.Port
	for kind, data := range netlink.Attrs(m.Body[unix.SizeofIfInfomsg:]) {
		switch {
		case kind == unix.IFLA_MASTER:
			c.Freed = false
		case kind == unix.IFLA_MTU && len(data) == 4:
			c.MTU = int(binary.NativeEndian.Uint32(data))
		case kind == unix.IFLA_ADDRESS && len(data) == len(c.MAC):
			c.MAC = [6]byte(data)
		case kind == unix.IFLA_PROTINFO && c.Port:
			const hairpin, isolated = 4, 33 // IFLA_BRPORT_MODE, IFLA_BRPORT_ISOLATED
			c.Hairpin, c.Isolated = flagOf(data, hairpin), flagOf(data, isolated)
		}
	}
}

// flagOf returns a flag among attributes, nil if it is not there.
func flagOf(attrs []byte, kind uint16) *bool {
	value := netlink.Find(attrs, kind)
	if len(value) == 0 {
		return nil
	}
	on := value[0] != 0
	return &on
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

// takeSetting decodes struct netconfmsg: a message with all settings of a link means that the link is new.
func (c *Change) takeSetting(data []byte, name func(int) string) bool {
	const head, ifindex = 4, 1 // NETCONFA_IFINDEX
	settings, setting := 0, uint16(0)
	for kind, data := range netlink.Attrs(data[min(head, len(data)):]) {
		if kind == ifindex && len(data) == 4 {
			c.Index = int(int32(binary.NativeEndian.Uint32(data)))
			continue
		}
		settings, setting, c.Value = settings+1, kind, int(int32(netlink.Uint32(data)))
	}
	if c.Index <= 0 || settings != 1 {
		return false
	}
	c.Link = name(c.Index)
	if s := settingName(data[0] == unix.AF_INET6, setting); s != "" {
		family := "ipv4"
		if data[0] == unix.AF_INET6 {
			family = "ipv6"
		}
		c.Sysctl = "net/" + family + "/conf/" + c.Link + "/" + s
	}
	return true
}

// settingName returns the name of a setting in a message (NETCONFA_*), empty if it is another one.
func settingName(v6 bool, setting uint16) string {
	switch setting {
	case 2:
		return "forwarding"
	case 3:
		return "rp_filter"
	case 4:
		return "mc_forwarding"
	case 5:
		if v6 {
			return "proxy_ndp"
		}
		return "proxy_arp"
	case 6:
		return "ignore_routes_with_linkdown"
	case 8:
		return "bc_forwarding"
	}
	return ""
}

// takeQueue decodes struct tcmsg and the kind of a queueing discipline.
func (c *Change) takeQueue(m netlink.Answer) {
	const head, parentAt, kind = 20, 12, 1           // TCA_KIND
	const ingress, arriving = 0xffff0000, 0xfffffff2 // a parent has either name: TC_H_INGRESS, and TC_H_MIN_INGRESS of it
	if len(m.Body) < head {
		return
	}
	switch parent := binary.NativeEndian.Uint32(m.Body[parentAt:]); {
	case m.Kind != unix.RTM_DELTFILTER:
		c.Qdisc = netlink.String(netlink.Find(m.Body[head:], kind))
	case parent == ingress || parent == arriving:
		c.Qdisc = "ingress"
	}
}

// takeRule decodes struct fib_rule_hdr and the attributes.
func (c *Change) takeRule(data []byte) {
	const head, tableAt = 12, 4
	if len(data) < head {
		return
	}
	c.Table = uint32(data[tableAt])
	for kind, value := range netlink.Attrs(data[head:]) {
		addr, _ := netip.AddrFromSlice(value)
		switch kind {
		case unix.FRA_DST:
			c.Dst = netip.PrefixFrom(addr, int(data[1]))
		case unix.FRA_SRC:
			c.From = netip.PrefixFrom(addr, int(data[2]))
		case unix.FRA_PRIORITY:
			c.Metric = netlink.Uint32(value)
		case unix.FRA_TABLE:
			c.Table = netlink.Uint32(value)
		}
	}
}

// Place returns the prefix of a route or the address of a neighbor that has changed.
func (c Change) Place() netip.Prefix {
	if c.Kind == Route {
		return c.Dst
	}
	return netip.PrefixFrom(c.Addr, c.Addr.BitLen())
}
