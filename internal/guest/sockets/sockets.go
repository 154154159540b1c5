// SPDX-License-Identifier: Apache-2.0

// Package sockets opens the sockets for DHCP, DHCPv6 and router advertisements in a pod's namespace, with the node's
// privileges. Each socket is bound to one link: a process that receives it can reach only that guest.
package sockets

import (
	"errors"
	"fmt"
	"net"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/guest/serve"
	"github.com/weft-net/weft/internal/kernel/lookup"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/netns"
)

const (
	serverPort4, serverPort6 = 67, 547
	// icmp6Filter is ICMPV6_FILTER of linux/icmpv6.h: a set bit drops the type.
	icmp6Filter  = 1
	solicitation = 133
	hopLimit     = 255
)

// Open opens the sockets that a guest's configuration needs.
func Open(pod *netns.NS, g model.GuestConfig) (s serve.Sockets, err error) {
	err = pod.Do(func() error {
		link, err := net.InterfaceByName(g.Link)
		if err != nil {
			return err
		}
		for _, o := range []struct {
			wanted bool
			to     **os.File
			name   string
			open   func(link *net.Interface) (int, error)
		}{
			{g.DHCP4 != nil, &s.DHCP4, "dhcp", dhcp4},
			{g.DHCP6 != nil, &s.DHCP6, "dhcpv6", dhcp6},
			{g.RA != nil, &s.RA, "ra", advertisements},
		} {
			if !o.wanted {
				continue
			}
			fd, err := o.open(link)
			if err != nil {
				return fmt.Errorf("%s: %w", o.name, err)
			}
			*o.to = os.NewFile(uintptr(fd), o.name+" on "+g.Link)
		}
		return nil
	})
	if err != nil {
		return serve.Sockets{}, errors.Join(fmt.Errorf("sockets on %s: %w", g.Link, err), s.Close())
	}
	return s, nil
}

// openSocket opens a socket, binds it to the link and sets its options.
func openSocket(family, kind, proto int, link *net.Interface, options func(fd int) error) (int, error) {
	fd, err := unix.Socket(family, kind|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, proto)
	if err != nil {
		return -1, err
	}
	if err = unix.BindToDevice(fd, link.Name); err == nil {
		err = options(fd)
	}
	if err != nil {
		_ = unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// option is a socket option with an integer value.
type option struct{ level, name, value int }

func set(fd int, options ...option) error {
	for _, o := range options {
		if err := unix.SetsockoptInt(fd, o.level, o.name, o.value); err != nil {
			return fmt.Errorf("option %d of level %d: %w", o.name, o.level, err)
		}
	}
	return nil
}

// bindServer binds a server's socket, which is bound to the link, to its port. The socket is the only one on its link, because
// of two each would get a part of the guest's packets; sockets for other links of the pod may share the port, also those
// that are bound to no link, as KubeVirt's servers for masquerade and bridge are.
func bindServer(fd int, link *net.Interface, family uint8, port uint16, addr unix.Sockaddr) error {
	// The kernel compares SO_REUSEADDR of both sockets: before the bind it is off, so that a second socket on the link is
	// refused, and afterwards on, for sockets of others.
	err := unix.Bind(fd, addr)
	if errors.Is(err, unix.EADDRINUSE) {
		links, lookupErr := lookup.UDPLinks(nil, family, port)
		if lookupErr != nil || slices.Contains(links, link.Index) {
			return errors.Join(err, lookupErr)
		}
		if err := shared(fd); err != nil {
			return err
		}
		return unix.Bind(fd, addr)
	}
	if err != nil {
		return err
	}
	return shared(fd)
}

func shared(fd int) error { return set(fd, option{unix.SOL_SOCKET, unix.SO_REUSEADDR, 1}) }

func dhcp4(link *net.Interface) (int, error) {
	return openSocket(unix.AF_INET, unix.SOCK_DGRAM, 0, link, func(fd int) error {
		if err := set(fd, option{unix.SOL_SOCKET, unix.SO_BROADCAST, 1}); err != nil {
			return err
		}
		return bindServer(fd, link, unix.AF_INET, serverPort4, &unix.SockaddrInet4{Port: serverPort4})
	})
}

func dhcp6(link *net.Interface) (int, error) {
	return openSocket(unix.AF_INET6, unix.SOCK_DGRAM, 0, link, func(fd int) error {
		if err := set(fd, option{unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 1}); err != nil {
			return err
		}
		if err := bindServer(fd, link, unix.AF_INET6, serverPort6, &unix.SockaddrInet6{Port: serverPort6}); err != nil {
			return err
		}
		return join(fd, link, net.ParseIP("ff02::1:2"))
	})
}

func advertisements(link *net.Interface) (int, error) {
	return openSocket(unix.AF_INET6, unix.SOCK_RAW, unix.IPPROTO_ICMPV6, link, func(fd int) error {
		var filter unix.ICMPv6Filter
		for i := range filter.Data {
			filter.Data[i] = 1<<32 - 1
		}
		filter.Data[solicitation/32] &^= 1 << (solicitation % 32)
		if err := unix.SetsockoptICMPv6Filter(fd, unix.IPPROTO_ICMPV6, icmp6Filter, &filter); err != nil {
			return err
		}
		err := set(fd, option{unix.IPPROTO_IPV6, unix.IPV6_RECVHOPLIMIT, 1},
			option{unix.IPPROTO_IPV6, unix.IPV6_MULTICAST_HOPS, hopLimit},
			option{unix.IPPROTO_IPV6, unix.IPV6_UNICAST_HOPS, hopLimit}, option{unix.IPPROTO_IPV6, unix.IPV6_MULTICAST_LOOP, 0},
			option{unix.IPPROTO_IPV6, unix.IPV6_MULTICAST_IF, link.Index})
		if err != nil {
			return err
		}
		return join(fd, link, net.ParseIP("ff02::2"))
	})
}

func join(fd int, link *net.Interface, group net.IP) error {
	return unix.SetsockoptIPv6Mreq(fd, unix.IPPROTO_IPV6, unix.IPV6_JOIN_GROUP, &unix.IPv6Mreq{
		Multiaddr: [16]byte(group), Interface: uint32(link.Index),
	})
}
