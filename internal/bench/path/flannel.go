// SPDX-License-Identifier: Apache-2.0

package path

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// flannel creates flannel's design: host-gw and vxlan with the routes and rules that flannel documents, udp with the
// real flanneld.
func (b *bench) flannel(ctx context.Context, w *world) error {
	mtu := 1500
	switch w.backend {
	case "vxlan":
		mtu = 1450
	case "udp":
		var err error
		if mtu, err = b.flanneld(ctx, w); err != nil {
			return fmt.Errorf("flanneld: %w", err)
		}
	}
	for i := range w.nodes {
		n, peer := &w.nodes[i], w.nodes[1-i]
		if err := w.addBridge(n, 2, mtu); err != nil {
			return err
		}
		if w.backend == "udp" {
			continue
		}
		err := n.ns.Do(func() error {
			if err := addRules(n.cidr); err != nil {
				return err
			}
			if w.backend == "vxlan" {
				return addVxlan(i, n.cidr, peer.cidr)
			}
			return netlink.RouteAdd(&netlink.Route{Dst: ipNet(peer.cidr), Gw: wireAddr(1 - i).AsSlice()})
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// addRules writes flannel's rules by iptables-restore.
func addRules(pods netip.Prefix) error {
	cluster := clusterCIDR().String()
	text := strings.NewReplacer("CLUSTER", cluster, "PODS", pods.String()).Replace(`*nat
:FLANNEL-POSTRTG - [0:0]
-A POSTROUTING -m comment --comment "flanneld masq" -j FLANNEL-POSTRTG
-A FLANNEL-POSTRTG -m mark --mark 0x4000/0x4000 -m comment --comment "flanneld masq" -j RETURN
-A FLANNEL-POSTRTG -s PODS -d CLUSTER -m comment --comment "flanneld masq" -j RETURN
-A FLANNEL-POSTRTG -s CLUSTER -d PODS -m comment --comment "flanneld masq" -j RETURN
-A FLANNEL-POSTRTG ! -s CLUSTER -d PODS -m comment --comment "flanneld masq" -j RETURN
-A FLANNEL-POSTRTG -s CLUSTER ! -d 224.0.0.0/4 -m comment --comment "flanneld masq" -j MASQUERADE --random-fully
-A FLANNEL-POSTRTG ! -s CLUSTER -d CLUSTER -m comment --comment "flanneld masq" -j MASQUERADE --random-fully
COMMIT
*filter
:FLANNEL-FWD - [0:0]
-A FORWARD -m comment --comment "flanneld forward" -j FLANNEL-FWD
-A FLANNEL-FWD -s CLUSTER -m comment --comment "flanneld forward" -j ACCEPT
-A FLANNEL-FWD -d CLUSTER -m comment --comment "flanneld forward" -j ACCEPT
COMMIT
`)
	cmd := exec.Command("iptables-restore", "--noflush")
	cmd.Stdin = strings.NewReader(text)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("iptables-restore: %w: %s", err, out)
	}
	return nil
}

// addVxlan creates the device and the peer's route, neighbor and FDB entry.
func addVxlan(i int, own, peer netip.Prefix) error {
	up, err := netlink.LinkByName("eth0")
	if err != nil {
		return err
	}
	mac := func(i int) net.HardwareAddr { return net.HardwareAddr{0x0a, 0, 0, 0, 0, byte(i + 1)} }
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.HardwareAddr, attrs.MTU = "flannel.1", mac(i), 1450
	dev := &netlink.Vxlan{
		LinkAttrs: attrs, VxlanId: 1, VtepDevIndex: up.Attrs().Index, SrcAddr: wireAddr(i).AsSlice(), Port: 8472,
	}
	if err := netlink.LinkAdd(dev); err != nil {
		return err
	}
	if err := setUpLink("flannel.1", netip.PrefixFrom(own.Addr(), 32)); err != nil {
		return err
	}
	index := dev.Attrs().Index
	vtep := peer.Addr().AsSlice()
	return errors.Join(
		netlink.NeighSet(&netlink.Neigh{
			LinkIndex: index, State: netlink.NUD_PERMANENT, Type: unix.RTN_UNICAST, IP: vtep, HardwareAddr: mac(1 - i),
		}),
		netlink.NeighSet(&netlink.Neigh{
			LinkIndex: index, State: netlink.NUD_PERMANENT, Family: unix.AF_BRIDGE, Flags: netlink.NTF_SELF,
			IP: wireAddr(1 - i).AsSlice(), HardwareAddr: mac(1 - i),
		}),
		netlink.RouteReplace(&netlink.Route{Dst: ipNet(peer), Gw: vtep, LinkIndex: index, Flags: int(netlink.FLAG_ONLINK)}))
}
