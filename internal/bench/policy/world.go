// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"

	"github.com/vishvananda/netlink"

	"github.com/weft-net/weft/internal/bench/path"
	"github.com/weft-net/weft/internal/netns"
)

// The host ends of the two pods.
const (
	clientLink = "cali0000000000a"
	serverLink = "cali0000000000b"
)

func clientAddr() netip.Addr { return netip.AddrFrom4([4]byte{10, 32, 0, 1}) }
func serverAddr() netip.Addr { return netip.AddrFrom4([4]byte{10, 32, 0, 2}) }

// world is one engine's node in one cell.
type world struct {
	engine engine
	cell   Cell
	node   *netns.NS
	pods   []*netns.NS
	ends   *path.Ends
}

// newNode makes a node that forwards.
func newNode() (*netns.NS, error) {
	ns, err := netns.Anonymous()
	if err != nil {
		return nil, err
	}
	err = ns.Do(func() error {
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			return err
		}
		return errors.Join(netlink.LinkSetUp(lo), setting("net/ipv4/ip_forward", "1"))
	})
	if err != nil {
		_ = ns.Close()
		return nil, fmt.Errorf("node: %w", err)
	}
	return ns, nil
}

// up makes the node, its two pods, what the engine puts there and the two ends of the load.
func (w *world) up(self string) error {
	var err error
	if w.node, err = newNode(); err != nil {
		return err
	}
	for _, p := range []struct {
		link string
		addr netip.Addr
	}{{clientLink, clientAddr()}, {serverLink, serverAddr()}} {
		ns, err := netns.Anonymous()
		if err != nil {
			return err
		}
		w.pods = append(w.pods, ns)
		if err := plug(w.node, ns, p.link, p.addr); err != nil {
			return fmt.Errorf("pod %s: %w", p.addr, err)
		}
	}
	if err := w.engine.program(w.node, w.cell); err != nil {
		return fmt.Errorf("program: %w", err)
	}
	w.ends, err = path.Join(self, w.pods[0], w.pods[1], serverAddr())
	return err
}

func (w *world) close() {
	if w.ends != nil {
		w.ends.Close()
	}
	w.engine.close()
	for _, ns := range append(w.pods, w.node) {
		if ns != nil {
			_ = ns.Close()
		}
	}
}

// gateway is every pod's; nobody has it.
func gateway() netip.Addr { return netip.AddrFrom4([4]byte{169, 254, 1, 1}) }

// plug makes a routed pod: one address, a gateway that is a permanent neighbour, a route to it on the node.
func plug(node, pod *netns.NS, host string, addr netip.Addr) error {
	mac := net.HardwareAddr{0xee, 0xee, 0xee, 0xee, 0xee, 0xee}
	one := ipNet(netip.PrefixFrom(addr, 32))
	err := node.Do(func() error {
		l := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: host, HardwareAddr: mac}, PeerName: "eth0", PeerNamespace: netlink.NsFd(pod.Fd())}
		if err := netlink.LinkAdd(l); err != nil {
			return err
		}
		up, err := netlink.LinkByName(host)
		if err != nil {
			return err
		}
		return errors.Join(netlink.LinkSetUp(up), netlink.RouteAdd(&netlink.Route{LinkIndex: up.Attrs().Index, Dst: one, Scope: netlink.SCOPE_LINK}))
	})
	if err != nil {
		return err
	}
	return pod.Do(func() error {
		l, err := netlink.LinkByName("eth0")
		if err != nil {
			return err
		}
		index, gw := l.Attrs().Index, gateway()
		if err := errors.Join(netlink.AddrAdd(l, &netlink.Addr{IPNet: one}), netlink.LinkSetUp(l)); err != nil {
			return err
		}
		return errors.Join(
			netlink.NeighSet(&netlink.Neigh{LinkIndex: index, State: netlink.NUD_PERMANENT, IP: gw.AsSlice(), HardwareAddr: mac}),
			netlink.RouteAdd(&netlink.Route{LinkIndex: index, Dst: ipNet(netip.PrefixFrom(gw, 32)), Scope: netlink.SCOPE_LINK}),
			netlink.RouteAdd(&netlink.Route{LinkIndex: index, Gw: gw.AsSlice()}))
	})
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

// setting writes a setting in the calling thread's namespace.
func setting(name, value string) error {
	if err := os.WriteFile(filepath.Join("/proc/sys", name), []byte(value), 0o644); err != nil {
		return fmt.Errorf("setting %s: %w", name, err)
	}
	return nil
}
