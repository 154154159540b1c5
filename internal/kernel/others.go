// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/kernel/link"
	"github.com/weft-net/weft/internal/kernel/netlink"
	"github.com/weft-net/weft/internal/kernel/rtnl"
)

// TakeLinks takes links away by their names, whoever made them. Missing ones are no error.
func (c *Conn) TakeLinks(ctx context.Context, names ...string) error {
	found, err := c.reader.LinksByName(ctx, names)
	if err != nil {
		return err
	}
	var batch []*rtnl.Message
	for name, f := range found {
		batch = append(batch, link.Delete(f.Index, name))
	}
	return c.rtnl.Send(ctx, batch)
}

// The numbers of linux/netfilter/ipset/ip_set.h.
const (
	ipsetProtocol                                    = 6
	ipsetDestroy, ipsetList                          = 3, 7
	ipsetAttrProtocol, ipsetAttrName, ipsetAttrFlags = 1, 2, 6
	// ipsetNamesOnly leaves the elements out of a list.
	ipsetNamesOnly = 1 << 1
)

// IPSets are the names of the namespace's ipsets that begin with a prefix; a kernel without ipset has none.
func (c *Conn) IPSets(prefix string) ([]string, error) {
	var out []string
	err := c.ipset(ipsetList, 0, func(s *netlink.Socket, b *netlink.Batch) error {
		b.BE32(ipsetAttrFlags|unix.NLA_F_NET_BYTEORDER, ipsetNamesOnly)
		_, err := s.Dump(b, func(a netlink.Answer) {
			_, body, _ := a.Netfilter()
			if name := netlink.String(netlink.Find(body, ipsetAttrName)); name != "" && strings.HasPrefix(name, prefix) {
				out = append(out, name)
			}
		})
		if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EOPNOTSUPP) { // no such part of netfilter
			return nil
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("ipsets: %w", err)
	}
	return out, nil
}

// TakeIPSet takes an ipset away. A missing one is no error.
func (c *Conn) TakeIPSet(name string) error {
	err := c.ipset(ipsetDestroy, unix.NLM_F_ACK, func(s *netlink.Socket, b *netlink.Batch) error {
		b.String(ipsetAttrName, name)
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

// ipset begins a message to the kernel's ipset, on a socket for it alone.
func (c *Conn) ipset(command, flags uint16, f func(*netlink.Socket, *netlink.Batch) error) error {
	s, err := netlink.Open(c.ns, netlink.Options{Protocol: unix.NETLINK_NETFILTER, Datagrams: 1, Size: 64 << 10})
	if err != nil {
		return err
	}
	defer func() { _ = s.Close() }()
	var b netlink.Batch
	s.Begin(&b)
	b.Netfilter(command|unix.NFNL_SUBSYS_IPSET<<8, flags, unix.AF_INET, unix.NFNETLINK_V0, 0)
	b.Uint8(ipsetAttrProtocol, ipsetProtocol)
	return f(s, &b)
}
