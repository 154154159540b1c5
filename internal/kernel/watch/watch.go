// SPDX-License-Identifier: Apache-2.0

// Package watch hears what the kernel tells of changes to links, addresses and routes of a network namespace, whoever
// makes them. It is told to look again, not what to believe: what is heard may be old by the time it is heard.
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

	"github.com/weft-net/weft/internal/netns"
)

// Kind is what a sign is about.
type Kind int

// The kinds of signs.
const (
	// Lost: the kernel had more to tell than there was room for; anything may have changed.
	Lost Kind = iota
	Link
	Addr
	Route
	// Neigh is an entry of a neighbour table, or of the forwarding table of a device.
	Neigh
	// Forwarding is the switch that lets a family be forwarded at all.
	Forwarding
)

// Sign is one change.
type Sign struct {
	Kind Kind
	Gone bool
	// Link is the link's name, for links, addresses, neighbours and routes with a metric; empty for what is on a link that is gone.
	Link string
	// Addr is the address; of a neighbour its own, of a forwarding entry where its tunnel leads.
	Addr netip.Addr
	// Protocol, Metric, Table, Dst and Gw are those of a route.
	Protocol uint8
	Metric   uint32
	Table    uint32
	Dst      netip.Prefix
	Gw       netip.Addr
	// MAC is a neighbour's. Permanent tells that somebody set it, Bridge that it is a forwarding entry of a device.
	MAC       [6]byte
	Permanent bool
	Bridge    bool
}

// Signs opens a socket in ns (nil: the process's own namespace) and puts a token into the channel, which holds one, when
// a sign comes that keep wants. The channel is closed after ctx ends. keep is called by one goroutine.
func Signs(ctx context.Context, ns *netns.NS, keep func(Sign) bool) (<-chan struct{}, error) {
	var fd int
	err := ns.Do(func() (err error) {
		fd, err = unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_ROUTE)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("watch: netlink socket: %w", err)
	}
	const groups = 1<<(unix.RTNLGRP_LINK-1) | 1<<(unix.RTNLGRP_IPV4_IFADDR-1) | 1<<(unix.RTNLGRP_IPV6_IFADDR-1) |
		1<<(unix.RTNLGRP_IPV4_ROUTE-1) | 1<<(unix.RTNLGRP_IPV6_ROUTE-1) | 1<<(unix.RTNLGRP_NEIGH-1) |
		1<<(unix.RTNLGRP_IPV4_NETCONF-1) | 1<<(unix.RTNLGRP_IPV6_NETCONF-1)
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: groups}); err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("watch: netlink groups: %w", err)
	}
	// Room for a burst of pods; refused to an ordinary user, then the usual room must do.
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 1<<20)
	f := os.NewFile(uintptr(fd), "rtnetlink watch")
	stop := context.AfterFunc(ctx, func() { _ = f.Close() })
	out := make(chan struct{}, 1)
	go func() {
		defer close(out)
		defer func() {
			stop()
			_ = f.Close()
		}()
		listen(ctx, f, keep, out)
	}()
	return out, nil
}

func listen(ctx context.Context, f *os.File, keep func(Sign) bool, out chan<- struct{}) {
	buf := make([]byte, 64<<10)
	name := func(index int) string { return nameOf(f, index) }
	for ctx.Err() == nil {
		n, err := f.Read(buf)
		wanted := false
		if errors.Is(err, unix.ENOBUFS) {
			wanted = keep(Sign{Kind: Lost})
		} else if err != nil {
			return // closed
		}
		messages, err := syscall.ParseNetlinkMessage(buf[:max(n, 0)])
		if err != nil {
			wanted = keep(Sign{Kind: Lost})
		}
		for _, m := range messages {
			if s, ok := parse(m, name); ok && !wanted {
				wanted = keep(s)
			}
		}
		if wanted {
			select {
			case out <- struct{}{}:
			default:
			}
		}
	}
}

// nameOf is the name of a link of the namespace that a socket is in.
func nameOf(f *os.File, index int) string {
	request, err := unix.NewIfreq("")
	if err != nil {
		return ""
	}
	request.SetUint32(uint32(index))
	raw, err := f.SyscallConn()
	if err != nil {
		return ""
	}
	var answer error
	if err := raw.Control(func(fd uintptr) { answer = unix.IoctlIfreq(int(fd), unix.SIOCGIFNAME, request) }); err != nil || answer != nil {
		return ""
	}
	return request.Name()
}

// parse reads one message; false for one that is of no kind that is known here. name is that of a link.
func parse(m syscall.NetlinkMessage, name func(index int) string) (Sign, bool) {
	var s Sign
	switch m.Header.Type {
	case unix.RTM_NEWLINK, unix.RTM_DELLINK:
		s.Kind, s.Gone = Link, m.Header.Type == unix.RTM_DELLINK
	case unix.RTM_NEWADDR, unix.RTM_DELADDR:
		s.Kind, s.Gone = Addr, m.Header.Type == unix.RTM_DELADDR
		if len(m.Data) < unix.SizeofIfAddrmsg {
			return s, false
		}
		s.Link = name(int(binary.NativeEndian.Uint32(m.Data[4:]))) // struct ifaddrmsg
	case unix.RTM_NEWROUTE, unix.RTM_DELROUTE:
		s.Kind, s.Gone = Route, m.Header.Type == unix.RTM_DELROUTE
		if len(m.Data) < unix.SizeofRtMsg {
			return s, false
		}
		s.Table, s.Protocol = uint32(m.Data[4]), m.Data[5] // struct rtmsg
	case unix.RTM_NEWNEIGH, unix.RTM_DELNEIGH:
		s.Kind, s.Gone = Neigh, m.Header.Type == unix.RTM_DELNEIGH
		if len(m.Data) < unix.SizeofNdMsg {
			return s, false
		}
		s.takeNeigh(m.Data, name)
		return s, true
	case unix.RTM_NEWNETCONF:
		s.Kind = Forwarding
		return s, forwarding(m.Data)
	default:
		return s, false
	}
	attrs, err := syscall.ParseNetlinkRouteAttr(&m)
	if err != nil {
		return Sign{Kind: Lost}, true
	}
	if s.Kind == Route {
		s.takeRoute(m.Data, attrs, name)
	}
	for _, a := range attrs {
		s.take(a)
	}
	return s, true
}

// take reads one attribute.
func (s *Sign) take(a syscall.NetlinkRouteAttr) {
	number := func() uint32 {
		if len(a.Value) < 4 {
			return 0
		}
		return binary.NativeEndian.Uint32(a.Value)
	}
	switch {
	case s.Kind == Link && a.Attr.Type == unix.IFLA_IFNAME:
		s.Link = unix.ByteSliceToString(a.Value)
	case s.Kind == Addr && (a.Attr.Type == unix.IFA_LOCAL || a.Attr.Type == unix.IFA_ADDRESS && !s.Addr.IsValid()):
		s.Addr, _ = netip.AddrFromSlice(a.Value)
	case s.Kind == Route && a.Attr.Type == unix.RTA_TABLE:
		s.Table = number()
	}
}

// forwarding tells whether a message of settings (struct netconfmsg and attributes) is about forwarding over all links.
func forwarding(b []byte) bool {
	const head, ifindex, switched = 4, 1, 2 // NETCONFA_IFINDEX, NETCONFA_FORWARDING
	const all = ^uint32(0)                  // NETCONFA_IFINDEX_ALL
	of, about := false, false
	for b = b[min(head, len(b)):]; len(b) >= unix.SizeofRtAttr; {
		size := int(binary.NativeEndian.Uint16(b))
		if size < unix.SizeofRtAttr || size > len(b) {
			break
		}
		if value := b[unix.SizeofRtAttr:size]; len(value) >= 4 {
			kind := binary.NativeEndian.Uint16(b[2:])
			of = of || kind == ifindex && binary.NativeEndian.Uint32(value) == all
			about = about || kind == switched
		}
		b = b[min((size+3)&^3, len(b)):]
	}
	return of && about
}
