// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/kernel/netlink"
	"github.com/weft-net/weft/internal/netns"
)

// OwnNamespace is the NSID of a change in the namespace of the watching socket itself.
const OwnNamespace = -1

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
	// Others reports the changes in all other namespaces that have an id in the watched one, instead of those in the watched one. It
	// holds no reference to them: they end as if there were no watch. It needs CAP_NET_BROADCAST in their user namespaces.
	Others bool
}

// Changes opens a socket in ns (nil: the process's own namespace) and calls heard for each change, from one goroutine. The channel is
// closed when that has ended, after ctx. The kernel filters: what is only made wakes no process.
func Changes(ctx context.Context, ns *netns.NS, scope Scope, heard func(Change)) (<-chan struct{}, error) {
	var fd int
	err := ns.Do(func() (err error) {
		fd, err = unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_ROUTE)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("watch: netlink socket: %w", err)
	}
	if err := scope.join(fd); err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("watch: %w", err)
	}
	f := os.NewFile(uintptr(fd), "rtnetlink changes")
	stop := context.AfterFunc(ctx, func() { _ = f.Close() })
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() { stop(); _ = f.Close() }()
		scope.listen(f, heard)
	}()
	return done, nil
}

// join sets up the socket: the filter comes first, so that nothing is heard without it.
func (s Scope) join(fd int) error {
	filter := s.filter()
	if err := unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}); err != nil {
		return fmt.Errorf("filter: %w", err)
	}
	groups := uint32(1<<(unix.RTNLGRP_LINK-1) | 1<<(unix.RTNLGRP_IPV4_IFADDR-1) | 1<<(unix.RTNLGRP_IPV6_IFADDR-1) |
		1<<(unix.RTNLGRP_IPV4_ROUTE-1) | 1<<(unix.RTNLGRP_IPV6_ROUTE-1) | 1<<(unix.RTNLGRP_NEIGH-1) |
		1<<(unix.RTNLGRP_IPV4_RULE-1) | 1<<(unix.RTNLGRP_IPV6_RULE-1) | 1<<(unix.RTNLGRP_TC-1))
	if s.Others {
		groups |= 1 << (unix.RTNLGRP_NSID - 1)
		if err := unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_LISTEN_ALL_NSID, 1); err != nil {
			return fmt.Errorf("events of other namespaces: %w", err)
		}
	} else {
		groups |= 1<<(unix.RTNLGRP_IPV4_NETCONF-1) | 1<<(unix.RTNLGRP_IPV6_NETCONF-1)
	}
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: groups}); err != nil {
		return fmt.Errorf("netlink groups: %w", err)
	}
	// Room for the events of a node's pods at once; an ordinary user is refused and has the usual room.
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 1<<20)
	return nil
}

func (s Scope) listen(f *os.File, heard func(Change)) {
	buf, oob := make([]byte, 64<<10), make([]byte, unix.CmsgSpace(4))
	name := func(index int) string { return nameOf(f, index) }
	if s.Others {
		name = func(int) string { return "" } // the index is another namespace's
	}
	raw, err := f.SyscallConn()
	if err != nil {
		return
	}
	for {
		var n, oobn int
		var from unix.Sockaddr
		var failed error
		err := raw.Read(func(fd uintptr) bool {
			n, oobn, _, from, failed = unix.Recvmsg(int(fd), buf, oob, 0)
			return !errors.Is(failed, unix.EAGAIN) && !errors.Is(failed, unix.EINTR)
		})
		if err != nil {
			return // closed
		}
		nsid := nsidOf(oob[:max(oobn, 0)])
		if errors.Is(failed, unix.ENOBUFS) {
			heard(Change{Sign: Sign{Kind: Lost}, NSID: OwnNamespace})
			continue
		}
		if failed != nil {
			return
		}
		if sa, ok := from.(*unix.SockaddrNetlink); !ok || sa.Pid != 0 {
			continue // the kernel alone knows
		}
		messages, err := syscall.ParseNetlinkMessage(buf[:n])
		if err != nil {
			heard(Change{Sign: Sign{Kind: Lost}, NSID: OwnNamespace})
			continue
		}
		for _, m := range messages {
			if c, ok := parseChange(m, nsid, name); ok && (c.Kind == Namespace || s.Others == (nsid != OwnNamespace)) {
				heard(c)
			}
		}
	}
}

// nsidOf reads the id of the namespace that a message comes from.
func nsidOf(oob []byte) int {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return OwnNamespace
	}
	for _, m := range messages {
		if m.Header.Level == unix.SOL_NETLINK && m.Header.Type == unix.NETLINK_LISTEN_ALL_NSID && len(m.Data) >= 4 {
			return int(int32(binary.NativeEndian.Uint32(m.Data)))
		}
	}
	return OwnNamespace
}

// parseChange reads one message that the filter let through.
func parseChange(m syscall.NetlinkMessage, nsid int, name func(int) string) (Change, bool) {
	c := Change{NSID: nsid}
	index := func(at int) bool {
		if len(m.Data) < at+4 {
			return false
		}
		c.Index = int(int32(binary.NativeEndian.Uint32(m.Data[at:])))
		return true
	}
	switch m.Header.Type {
	case unix.RTM_DELNSID:
		c.Kind = Namespace
		return c, c.takeNSID(m.Data)
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
		return c, c.takeSetting(m.Data, name)
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
func (c *Change) takeLink(m syscall.NetlinkMessage) {
	if len(m.Data) < unix.SizeofIfInfomsg {
		return
	}
	c.Down = binary.NativeEndian.Uint32(m.Data[8:])&unix.IFF_UP == 0
	c.Freed = m.Data[0] != unix.AF_BRIDGE
	for kind, data := range netlink.Attrs(m.Data[unix.SizeofIfInfomsg:]) {
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
