// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"github.com/weft-net/weft/internal/kernel/link"
	"github.com/weft-net/weft/internal/kernel/rtnl"
	"github.com/weft-net/weft/internal/state"
)

// A link that was brought up is not ready when the kernel says so.
//
// An end of a pair has a carrier when both ends are up, but the one that was up first sends nothing, and a bridge's port
// forwards nothing, until a worker of the kernel has heard of it: usually at once, on a busy machine many milliseconds
// later. Asking for a link makes the kernel do that work before it answers (rtnl_getlink, Linux 6.8).
//
// An IPv6 address hears neighbour solicitations only when another worker has joined the address's group, also one without
// duplicate address detection. A solicitation that comes earlier is lost, and the next one comes a second later. Nothing
// makes the kernel hurry, so the groups are looked at.

const (
	joinPatience = time.Second
	joinFirst    = 50 * time.Microsecond
	joinLongest  = 5 * time.Millisecond
)

// heard is the questions about the links that came up in this Apply, and about their masters.
func (v *view) heard() []*rtnl.Message {
	var batch []*rtnl.Message
	for _, l := range v.raised {
		batch = append(batch, link.GetIndex(v.links[l.Name].Index))
		if master, ok := v.links[l.Master]; ok {
			batch = append(batch, link.GetIndex(master.Index))
		}
	}
	return batch
}

// settle makes the pod's links able to pass packets before Apply returns; the node's were asked for when they came up, as
// the later ends. A link that is to announce its addresses when it comes up had no carrier then; to have its MAC written
// again is as good a reason.
func (a *apply) settle(ctx context.Context) error {
	v := a.pod
	batch := v.heard()
	for _, l := range v.raised {
		have := v.links[l.Name]
		if l.Peer != nil && !have.MAC.IsZero() && v.notifies(l) {
			batch = append(batch, link.Set(have.Index, l.Name, link.Change{MAC: have.MAC}))
		}
	}
	if len(batch) > 0 {
		if err := v.conn.rtnl.Send(ctx, batch); err != nil {
			return in(v.name, err)
		}
	}
	for _, v := range []*view{a.host, a.pod} {
		for _, name := range v.fresh6 {
			if err := v.joined(ctx, name); err != nil {
				return in(v.name, err)
			}
		}
	}
	return nil
}

// joined waits until a link that is up hears solicitations for its planned IPv6 addresses. A plan that does not come
// true in time is no error: packets will pass a little later.
func (v *view) joined(ctx context.Context, name string) error {
	groups := map[netip.Addr]bool{}
	if l := v.links[name]; l.Kind == "" || !v.isUp(name) || unasked(l.Link) { // lo has no groups, and a link that is down hears nothing
		return nil
	}
	for _, a := range v.want.Addrs {
		if a.Link == name && a.Prefix.Addr().Is6() && !a.Absent {
			groups[solicited(a.Prefix.Addr())] = true
		}
	}
	index, wait := v.links[name].Index, joinFirst
	for end := time.Now().Add(joinPatience); len(groups) > 0; wait = min(2*wait, joinLongest) {
		err := v.conn.rtnl.Dump(ctx, link.ListGroups(index), func(body []byte) {
			if group, on, ok := link.DecodeGroup(body); ok && on == index {
				delete(groups, group)
			}
		})
		if err != nil {
			return fmt.Errorf("link %s: multicast groups: %w", name, err)
		}
		if len(groups) == 0 || time.Now().After(end) {
			break
		}
		time.Sleep(wait)
	}
	return nil
}

// unasked tells whether nobody asks for neighbours on a link: it carries IP itself. A tun device also joins nothing before a
// program reads it.
func unasked(l state.Link) bool {
	return l.Kind == state.IPIP || l.Kind == state.Wireguard || l.Tun != nil && l.Tun.IP
}

// isUp tells whether a link is up after this Apply.
func (v *view) isUp(name string) bool {
	for _, l := range v.want.Links {
		if l.Name == name && l.Up != nil {
			return *l.Up
		}
	}
	up := v.links[name].Up
	return up != nil && *up
}

// solicited is the group in which an address is asked for (RFC 4291, 2.7.1).
func solicited(a netip.Addr) netip.Addr {
	b, ip := [16]byte{0: 0xff, 1: 0x02, 11: 0x01, 12: 0xff}, a.As16()
	copy(b[13:], ip[13:])
	return netip.AddrFrom16(b)
}

// notifies tells whether a plan wants a link to say its addresses when it comes up.
func (v *view) notifies(l state.Link) bool {
	for _, s := range v.want.Sysctls {
		if s.Value != "0" && (s.Name == "net/ipv4/conf/"+l.Name+"/arp_notify" || s.Name == "net/ipv6/conf/"+l.Name+"/ndisc_notify") {
			return true
		}
	}
	return false
}
