// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/kernel/link"
	"github.com/weft-net/weft/internal/kernel/rtnl"
)

// TakeLinks takes links away by their names, whoever made them. Missing ones are no error.
func (c *Conn) TakeLinks(ctx context.Context, names ...string) error {
	found, err := c.linksByName(ctx, names)
	if err != nil {
		return err
	}
	var batch []*rtnl.Message
	for name, f := range found {
		batch = append(batch, link.Delete(f.Index, name))
	}
	return c.rtnl.Send(ctx, batch)
}

// setNames asks for the names of ipsets alone.
const setNames = 1 << 1

// IPSets are the names of the namespace's ipsets that begin with a prefix; a kernel without ipset has none.
func (c *Conn) IPSets(prefix string) ([]string, error) {
	var out []string
	err := c.ns.Do(func() error {
		r := ipset(nl.IPSET_CMD_LIST, unix.NLM_F_DUMP)
		r.AddData(&nl.Uint32Attribute{Type: nl.IPSET_ATTR_FLAGS | nl.NLA_F_NET_BYTEORDER, Value: setNames})
		answers, err := r.Execute(unix.NETLINK_NETFILTER, 0)
		if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EOPNOTSUPP) { // no such part of netfilter
			return nil
		}
		for _, b := range answers {
			attrs, err := nl.ParseRouteAttr(b[min(len(b), nl.SizeofNfgenmsg):])
			if err != nil {
				return err
			}
			for _, a := range attrs {
				if name := strings.TrimRight(string(a.Value), "\x00"); a.Attr.Type == nl.IPSET_ATTR_SETNAME && strings.HasPrefix(name, prefix) {
					out = append(out, name)
				}
			}
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
	err := c.ns.Do(func() error {
		r := ipset(nl.IPSET_CMD_DESTROY, unix.NLM_F_ACK)
		r.AddData(nl.NewRtAttr(nl.IPSET_ATTR_SETNAME, nl.ZeroTerminated(name)))
		_, err := r.Execute(unix.NETLINK_NETFILTER, 0)
		return err
	})
	if err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("ipset %s: %w", name, err)
	}
	return nil
}

func ipset(command, flags int) *nl.NetlinkRequest {
	r := nl.NewNetlinkRequest(command|unix.NFNL_SUBSYS_IPSET<<8, flags)
	r.AddData(&nl.Nfgenmsg{NfgenFamily: unix.AF_INET, Version: nl.NFNETLINK_V0})
	r.AddData(nl.NewRtAttr(nl.IPSET_ATTR_PROTOCOL, nl.Uint8Attr(nl.IPSET_PROTOCOL)))
	return r
}
