// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"

	"github.com/weft-net/weft/internal/bench/byhand"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/vm/phase1"
)

// place is where a guest is: what it has, and who its gateway is.
type place struct {
	addr       netip.Prefix
	mac        net.HardwareAddr
	gateway    netip.Addr
	gatewayMAC net.HardwareAddr
	// known is the hardware address by which the node knows the machine's pod.
	known net.HardwareAddr
	mtu   int
}

// place is what the plan of the machine makes of the guest. Who has which hardware address is known from the start, to
// all that are on its way.
func (w *world) place(n phase1.Network) (place, error) {
	p := place{
		addr: netip.PrefixFrom(machineAddr(), 32), gateway: byhand.Gateway(), gatewayMAC: byhand.MAC(), mtu: n.Device.MTU,
	}
	var err error
	if p.mac, err = parseMAC(n.Device.MAC); err != nil {
		return p, err
	}
	p.known = p.mac
	if w.binding == model.VMMasquerade {
		if n.Guest == nil || n.Guest.DHCP4 == nil {
			return p, errors.New("the plan has no address for the guest")
		}
		p.addr, p.gateway = n.Guest.DHCP4.Address, n.Guest.DHCP4.Router
		if p.gatewayMAC, err = parseMAC(n.Guest.LinkMAC); err != nil {
			return p, err
		}
		pod, err := linkOf(w.pod, n.PodLink)
		if err != nil {
			return p, err
		}
		p.known = pod.Attrs().HardwareAddr
		if err := know(w.pod, n.Guest.Link, p.addr.Addr(), p.mac); err != nil {
			return p, err
		}
	}
	return p, know(w.node, w.wire, machineAddr(), p.known)
}

// know tells a namespace who has an address that is behind a link.
func know(ns *netns.NS, link string, addr netip.Addr, mac net.HardwareAddr) error {
	l, err := linkOf(ns, link)
	if err != nil {
		return err
	}
	index := l.Attrs().Index
	return ns.Do(func() error {
		dst := &net.IPNet{IP: addr.AsSlice(), Mask: net.CIDRMask(32, 32)}
		return errors.Join(
			netlink.NeighSet(&netlink.Neigh{
				LinkIndex: index, State: netlink.NUD_PERMANENT, IP: addr.AsSlice(), HardwareAddr: mac,
			}),
			netlink.RouteReplace(&netlink.Route{LinkIndex: index, Dst: dst, Scope: netlink.SCOPE_LINK}))
	})
}

// inhabit makes the guest's link, and gives it what the guest would learn by DHCP.
func inhabit(guest *netns.NS, p place) error {
	err := guest.Do(func() error {
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			return err
		}
		tap := &netlink.Tuntap{
			LinkAttrs: netlink.LinkAttrs{Name: "eth0", TxQLen: 1000}, Mode: netlink.TUNTAP_MODE_TAP,
			Flags: netlink.TUNTAP_NO_PI | netlink.TUNTAP_VNET_HDR | netlink.TUNTAP_ONE_QUEUE,
		}
		if err := errors.Join(netlink.LinkSetUp(lo), netlink.LinkAdd(tap)); err != nil {
			return err
		}
		l, err := netlink.LinkByName("eth0")
		if err != nil {
			return err
		}
		addr := &netlink.Addr{IPNet: &net.IPNet{IP: p.addr.Addr().AsSlice(), Mask: net.CIDRMask(p.addr.Bits(), 32)}}
		return errors.Join(netlink.LinkSetHardwareAddr(l, p.mac), netlink.LinkSetMTU(l, p.mtu), netlink.AddrAdd(l, addr),
			netlink.LinkSetUp(l))
	})
	if err != nil {
		return fmt.Errorf("guest: %w", err)
	}
	if err := know(guest, "eth0", p.gateway, p.gatewayMAC); err != nil {
		return fmt.Errorf("guest: %w", err)
	}
	l, err := linkOf(guest, "eth0")
	if err != nil {
		return err
	}
	return guest.Do(func() error {
		return netlink.RouteAdd(&netlink.Route{LinkIndex: l.Attrs().Index, Gw: p.gateway.AsSlice()})
	})
}

// macvtapLink is what a CNI plugin would have left in the pod.
const macvtapLink = "macvtap0"

func macvtap(pod *netns.NS) error {
	parent, err := linkOf(pod, "eth0")
	if err != nil {
		return err
	}
	return pod.Do(func() error {
		// what the machine has not taken waits there
		attrs := netlink.LinkAttrs{Name: macvtapLink, ParentIndex: parent.Attrs().Index, TxQLen: 1000}
		l := &netlink.Macvtap{Macvlan: netlink.Macvlan{LinkAttrs: attrs, Mode: netlink.MACVLAN_MODE_BRIDGE}}
		if err := netlink.LinkAdd(l); err != nil {
			return fmt.Errorf("macvtap: %w", err)
		}
		return netlink.LinkSetUp(l)
	})
}
