// SPDX-License-Identifier: Apache-2.0

// Package baseline creates a node with routed pods without weft, as a baseline for measurements.
package baseline

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"

	"github.com/vishvananda/netlink"

	"github.com/weft-net/weft/internal/netns"
)

// NewNode creates a node with IP forwarding.
func NewNode() (*netns.NS, error) {
	ns, err := netns.Anonymous()
	if err != nil {
		return nil, err
	}
	err = ns.Do(func() error {
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			return err
		}
		return errors.Join(netlink.LinkSetUp(lo), sysctl("net/ipv4/ip_forward", "1"))
	})
	if err != nil {
		_ = ns.Close()
		return nil, fmt.Errorf("node: %w", err)
	}
	return ns, nil
}

// Gateway is the link-local gateway address of all pods; no interface has it.
func Gateway() netip.Addr { return netip.AddrFrom4([4]byte{169, 254, 1, 1}) }

// AddPod connects a routed pod: one address, a permanent neighbor for the gateway, and a route on the node.
func AddPod(node, pod *netns.NS, host string, addr netip.Addr) error {
	mac := MAC()
	dst := ipNet(netip.PrefixFrom(addr, 32))
	err := node.Do(func() error {
		l := &netlink.Veth{
			LinkAttrs: netlink.LinkAttrs{Name: host, HardwareAddr: mac}, PeerName: "eth0", PeerNamespace: netlink.NsFd(pod.Fd()),
		}
		if err := netlink.LinkAdd(l); err != nil {
			return err
		}
		link, err := netlink.LinkByName(host)
		if err != nil {
			return err
		}
		return errors.Join(netlink.LinkSetUp(link),
			netlink.RouteAdd(&netlink.Route{LinkIndex: link.Attrs().Index, Dst: dst, Scope: netlink.SCOPE_LINK}))
	})
	if err != nil {
		return err
	}
	return pod.Do(func() error {
		l, err := netlink.LinkByName("eth0")
		if err != nil {
			return err
		}
		index, gw := l.Attrs().Index, Gateway()
		if err := errors.Join(netlink.AddrAdd(l, &netlink.Addr{IPNet: dst}), netlink.LinkSetUp(l)); err != nil {
			return err
		}
		return errors.Join(
			netlink.NeighSet(&netlink.Neigh{
				LinkIndex: index, State: netlink.NUD_PERMANENT, IP: gw.AsSlice(), HardwareAddr: mac,
			}),
			netlink.RouteAdd(&netlink.Route{LinkIndex: index, Dst: ipNet(netip.PrefixFrom(gw, 32)), Scope: netlink.SCOPE_LINK}),
			netlink.RouteAdd(&netlink.Route{LinkIndex: index, Gw: gw.AsSlice()}))
	})
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

// sysctl writes a sysctl in the calling thread's namespace.
func sysctl(name, value string) error {
	if err := os.WriteFile(filepath.Join("/proc/sys", name), []byte(value), 0o644); err != nil {
		return fmt.Errorf("sysctl %s: %w", name, err)
	}
	return nil
}

// MAC is the MAC address of all host interfaces.
func MAC() net.HardwareAddr { return net.HardwareAddr{0xee, 0xee, 0xee, 0xee, 0xee, 0xee} }
