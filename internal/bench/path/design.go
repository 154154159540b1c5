// SPDX-License-Identifier: Apache-2.0

package path

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"

	"github.com/vishvananda/netlink"

	"github.com/weft-net/weft/internal/bench/subprocess"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/state"
)

// clusterCIDR returns the range of all pods.
func clusterCIDR() netip.Prefix { return netip.MustParsePrefix("10.244.0.0/16") }

func wireAddr(i int) netip.Addr { return netip.AddrFrom4([4]byte{172, 31, 0, byte(i + 1)}) }

// world is a running design.
type world struct {
	// impl is wire, flannel or weft; backend joins the nodes; plugin joins weft's pods.
	impl, backend, plugin string
	// fast reports whether established flows of the pods take the fast path.
	fast bool
	// guarded reports whether pods' links and tunnels have source guards, as with an agent.
	guarded bool
	// policies is how many NetworkPolicies select the pods.
	policies int
	// unfiltered reports whether the nodes have no table of nftables at all, and so no connection tracking.
	unfiltered bool
	dir        string
	nodes      [2]node
	processes  []*subprocess.Process
	ns         []*netns.NS
}

// node is one of a world's two nodes.
type node struct {
	ns   *netns.NS
	cidr netip.Prefix
	pods []pod
}

type pod struct {
	ns   *netns.NS
	addr netip.Addr
	// link is the node's end of the pod's link and mac the pod's MAC address, of weft's designs.
	link string
	mac  state.MAC
}

func (w *world) name() string {
	if w.plugin == "" {
		return w.impl
	}
	name := w.impl + " " + w.plugin
	if w.fast {
		name += fast
	}
	switch {
	case w.unfiltered:
		name += unfiltered
	case !w.guarded:
		name += unguarded
	case w.policies > 0:
		name += withPolicies(w.policies)
	}
	return name
}

// Parts of names of designs: with the fast path, without source guards, and without any rule.
const (
	fast       = " fast"
	unguarded  = " unguarded"
	unfiltered = " unfiltered"
)

// withPolicies is the suffix of names of designs with policies.
func withPolicies(n int) string { return fmt.Sprintf(", %d policies", n) }

func (w *world) namespace() (*netns.NS, error) {
	ns, err := netns.Anonymous()
	if err == nil {
		w.ns = append(w.ns, ns)
	}
	return ns, err
}

// addNodes creates the two nodes and the wire.
func (w *world) addNodes() error {
	for i := range w.nodes {
		ns, err := w.namespace()
		if err != nil {
			return err
		}
		w.nodes[i] = node{ns: ns, cidr: netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 244, byte(i + 1), 0}), 24)}
	}
	if err := addVeth(w.nodes[0].ns, "eth0", w.nodes[1].ns, "eth0"); err != nil {
		return fmt.Errorf("wire: %w", err)
	}
	for i, n := range w.nodes {
		if err := n.ns.Do(func() error { return setUpLink("eth0", netip.PrefixFrom(wireAddr(i), 24)) }); err != nil {
			return fmt.Errorf("wire: %w", err)
		}
	}
	return nil
}

// close stops the processes and deletes the namespaces.
func (w *world) close() {
	for _, p := range w.processes {
		p.Stop()
	}
	for _, ns := range w.ns {
		_ = ns.Close()
	}
}

// addVeth connects two namespaces by a veth pair.
func addVeth(a *netns.NS, an string, b *netns.NS, bn string) error {
	return a.Do(func() error {
		l := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: an}, PeerName: bn, PeerNamespace: netlink.NsFd(b.Fd())}
		return netlink.LinkAdd(l)
	})
}

// setUpLink assigns addresses to a link and sets it and lo up.
func setUpLink(name string, prefixes ...netip.Prefix) error {
	for _, name := range []string{"lo", name} {
		l, err := netlink.LinkByName(name)
		if err != nil {
			return err
		}
		for _, p := range prefixes {
			if name != "lo" {
				err = errors.Join(err, netlink.AddrAdd(l, &netlink.Addr{IPNet: ipNet(p)}))
			}
		}
		if err = errors.Join(err, netlink.LinkSetUp(l)); err != nil {
			return fmt.Errorf("link %s: %w", name, err)
		}
	}
	return nil
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

func gatewayOf(cidr netip.Prefix) netip.Addr { return cidr.Masked().Addr().Next() }

// sysctl writes a sysctl in the calling thread's namespace.
func sysctl(name, value string) error {
	if err := os.WriteFile(filepath.Join("/proc/sys", name), []byte(value), 0o644); err != nil {
		return fmt.Errorf("sysctl %s: %w", name, err)
	}
	return nil
}

// addBridge creates the pods of a node as in flannel's default configuration: ports of the bridge cni0, in hairpin
// mode, with the sysctls that kube-proxy needs.
func (w *world) addBridge(n *node, pods, mtu int) error {
	err := n.ns.Do(func() error {
		err := netlink.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "cni0", MTU: mtu}})
		if err == nil {
			err = setUpLink("cni0", netip.PrefixFrom(gatewayOf(n.cidr), n.cidr.Bits()))
		}
		return errors.Join(err, sysctl("net/ipv4/ip_forward", "1"), enableBridgeNetfilter())
	})
	if err != nil {
		return fmt.Errorf("bridge: %w", err)
	}
	for i := range pods {
		if err := w.addBridgePod(n, i, mtu); err != nil {
			return fmt.Errorf("pod: %w", err)
		}
	}
	return nil
}

// enableBridgeNetfilter passes bridged packets to iptables, which kube-proxy's services need on every node.
func enableBridgeNetfilter() error { return sysctl("net/bridge/bridge-nf-call-iptables", "1") }

// addBridgePod creates one pod on the bridge.
func (w *world) addBridgePod(n *node, i, mtu int) error {
	ns, err := w.namespace()
	if err != nil {
		return err
	}
	host := "veth" + strconv.Itoa(i)
	if err := addVeth(n.ns, host, ns, "eth0"); err != nil {
		return err
	}
	err = n.ns.Do(func() error {
		bridge, err := netlink.LinkByName("cni0")
		if err != nil {
			return err
		}
		l, err := netlink.LinkByName(host)
		if err != nil {
			return err
		}
		return errors.Join(netlink.LinkSetMTU(l, mtu), netlink.LinkSetMaster(l, bridge), netlink.LinkSetHairpin(l, true),
			netlink.LinkSetUp(l))
	})
	if err != nil {
		return err
	}
	p := pod{ns: ns, addr: netip.AddrFrom4([4]byte{10, 244, n.cidr.Addr().As4()[2], byte(10 + i)})}
	n.pods = append(n.pods, p)
	return ns.Do(func() error {
		if err := setUpLink("eth0", netip.PrefixFrom(p.addr, n.cidr.Bits())); err != nil {
			return err
		}
		l, err := netlink.LinkByName("eth0")
		if err != nil {
			return err
		}
		return errors.Join(netlink.LinkSetMTU(l, mtu),
			netlink.RouteAdd(&netlink.Route{LinkIndex: l.Attrs().Index, Gw: gatewayOf(n.cidr).AsSlice()}))
	})
}

// setUp creates a design.
func (b *bench) setUp(ctx context.Context, w *world) (err error) {
	if w.dir, err = os.MkdirTemp(b.dir, "world-"); err != nil {
		return err
	}
	if err = w.addNodes(); err != nil {
		return err
	}
	switch w.impl {
	case "wire":
		for i := range w.nodes {
			w.nodes[i].pods = []pod{{ns: w.nodes[i].ns, addr: wireAddr(i)}}
		}
		return nil
	case "flannel":
		return b.flannel(ctx, w)
	}
	return b.weft(ctx, w)
}
