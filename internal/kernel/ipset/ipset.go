// SPDX-License-Identifier: Apache-2.0

// Package ipset lists a namespace's ipsets and destroys them: those that other network plugins left. weft makes none.
package ipset

import (
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/kernel/netlink"
	"github.com/weft-net/weft/internal/netns"
)

// The numbers of linux/netfilter/ipset/ip_set.h.
const (
	protocolVersion                   = 6
	destroy, list                     = 3, 7
	attrProtocol, attrName, attrFlags = 1, 2, 6
	// namesOnly omits the elements from a list.
	namesOnly = 1 << 1
)

// Names returns the names of a namespace's ipsets that have a prefix; a kernel without ipset has none.
func Names(ns *netns.NS, prefix string) ([]string, error) {
	var out []string
	err := request(ns, list, 0, func(s *netlink.Socket, b *netlink.Batch) error {
		b.BE32(attrFlags|unix.NLA_F_NET_BYTEORDER, namesOnly)
		_, err := s.Dump(b, func(a netlink.Answer) {
			_, body, _ := a.Netfilter()
			if name := netlink.String(netlink.Find(body, attrName)); name != "" && strings.HasPrefix(name, prefix) {
				out = append(out, name)
			}
		})
		if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EOPNOTSUPP) {
			// the kernel has no ipset
			return nil
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("ipsets: %w", err)
	}
	return out, nil
}

// Destroy deletes an ipset. A missing one is no error.
func Destroy(ns *netns.NS, name string) error {
	err := request(ns, destroy, unix.NLM_F_ACK, func(s *netlink.Socket, b *netlink.Batch) error {
		b.String(attrName, name)
		var errno unix.Errno
		err := s.Exchange(b, func(a netlink.Answer) bool {
			errno = a.Errno()
			return a.Done()
		})
		if err == nil && errno != 0 && errno != unix.ENOENT {
			err = errno
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("ipset %s: %w", name, err)
	}
	return nil
}

// request begins an ipset message, on a socket of its own.
func request(ns *netns.NS, command, flags uint16, f func(*netlink.Socket, *netlink.Batch) error) error {
	s, err := netlink.Open(ns, netlink.Options{Protocol: unix.NETLINK_NETFILTER, Datagrams: 1, Size: 64 << 10})
	if err != nil {
		return err
	}
	defer func() { _ = s.Close() }()
	var b netlink.Batch
	s.Begin(&b)
	b.Netfilter(command|unix.NFNL_SUBSYS_IPSET<<8, flags, unix.AF_INET, unix.NFNETLINK_V0, 0)
	b.Uint8(attrProtocol, protocolVersion)
	return f(s, &b)
}
