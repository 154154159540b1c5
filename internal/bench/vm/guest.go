// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"

	"github.com/weft-net/weft/internal/bench/baseline"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/vm/phase1"
)

// guestNet is the network configuration of a guest.
type guestNet struct {
	addr       netip.Prefix
	mac        net.HardwareAddr
	gateway    netip.Addr
	gatewayMAC net.HardwareAddr
	// nodeMAC is the MAC address by which the node reaches the VM.
	nodeMAC net.HardwareAddr
	mtu     int
}

// guestNet returns the guest's configuration from the VM's plan, and adds permanent neighbors along the path.
func (w *world) guestNet(n phase1.Network) (guestNet, error) {
	p := guestNet{
		addr: netip.PrefixFrom(vmAddr(), 32), gateway: baseline.Gateway(), gatewayMAC: baseline.MAC(), mtu: n.Device.MTU,
	}
	var err error
	if p.mac, err = parseMAC(n.Device.MAC); err != nil {
		return p, err
	}
	p.nodeMAC = p.mac
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
		p.nodeMAC = pod.Attrs().HardwareAddr
		if err := addNeighbor(w.pod, n.Guest.Link, p.addr.Addr(), p.mac); err != nil {
			return p, err
		}
	}
	return p, addNeighbor(w.node, w.hostLink, vmAddr(), p.nodeMAC)
}

// addNeighbor adds a permanent neighbor and a route for an address behind a link.
func addNeighbor(ns *netns.NS, link string, addr netip.Addr, mac net.HardwareAddr) error {
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

// configureGuest creates the guest's link and configures it as DHCP would.
func configureGuest(guest *netns.NS, p guestNet) error {
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
	if err := addNeighbor(guest, "eth0", p.gateway, p.gatewayMAC); err != nil {
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

// macvtapLink is the macvtap that a CNI plugin would have created in the pod.
const macvtapLink = "macvtap0"

func addMacvtap(pod *netns.NS) error {
	parent, err := linkOf(pod, "eth0")
	if err != nil {
		return err
	}
	return pod.Do(func() error {
		// TxQLen limits the frames that wait for the VM.
		attrs := netlink.LinkAttrs{Name: macvtapLink, ParentIndex: parent.Attrs().Index, TxQLen: 1000}
		l := &netlink.Macvtap{Macvlan: netlink.Macvlan{LinkAttrs: attrs, Mode: netlink.MACVLAN_MODE_BRIDGE}}
		if err := netlink.LinkAdd(l); err != nil {
			return fmt.Errorf("macvtap: %w", err)
		}
		return netlink.LinkSetUp(l)
	})
}
