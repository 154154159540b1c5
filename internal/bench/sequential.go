// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"encoding/json"
	"net"
	"net/netip"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/netns"
)

// sequentialApplier sends one netlink request after the other by netlink's package-level functions, which open a socket
// for each request, as flannel does. It keeps the applied state and reads nothing that flannel does not read.
type sequentialApplier struct {
	ns      *netns.NS
	backend string
	// listRoutes lists the routes before and after each addition, as flannel's host-gw does.
	listRoutes bool
	done       map[string]model.Node
	dev        int
	count      int
}

func (a *sequentialApplier) messages() int { return a.count }

// apply measures the requests only, not the search for differences: flannel's watch reports what changed.
func (a *sequentialApplier) apply(_ context.Context, c *model.Cluster) (took time.Duration, err error) {
	var todo []func(dev int) error
	now := make(map[string]bool, len(c.Nodes))
	for _, n := range c.Nodes {
		now[n.Name] = true
		if have, ok := a.done[n.Name]; n.Name != c.Self && (!ok || !have.Published.Equal(n.Published)) {
			todo = append(todo, func(dev int) error { return a.peer(dev, n, true) })
		}
	}
	for name, n := range a.done {
		if !now[name] {
			todo = append(todo, func(dev int) error { return a.peer(dev, n, false) })
		}
	}
	err = a.ns.Do(func() error {
		start := time.Now()
		dev, err := a.device()
		for i := 0; i < len(todo) && err == nil; i++ {
			err = todo[i](dev)
		}
		took = time.Since(start)
		return err
	})
	return took, err
}

// device returns the index of the link for routes to peers, and creates the tunnel device if it is missing.
func (a *sequentialApplier) device() (int, error) {
	if a.dev != 0 {
		return a.dev, nil
	}
	a.done = map[string]model.Node{}
	up, err := netlink.LinkByName("up0")
	if err != nil {
		return 0, err
	}
	a.count += 2
	if a.dev = up.Attrs().Index; a.backend == backendHostGW {
		return a.dev, nil
	}
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MTU = "flannel.1", 1450
	dev := &netlink.Vxlan{
		LinkAttrs: attrs, VxlanId: 1, VtepDevIndex: up.Attrs().Index, SrcAddr: nodeAddr(0).AsSlice(), Port: 8472,
	}
	if err := netlink.LinkAdd(dev); err != nil {
		return 0, err
	}
	own := netip.PrefixFrom(podCIDR(0).Addr(), 32)
	if err := netlink.AddrAdd(dev, &netlink.Addr{IPNet: ipNet(own)}); err != nil {
		return 0, err
	}
	a.count += 6
	a.dev = dev.Attrs().Index
	return a.dev, netlink.LinkSetUp(dev)
}

// peer adds or deletes the routes, neighbors and FDB entries of one peer.
func (a *sequentialApplier) peer(dev int, n model.Node, add bool) error {
	if delete(a.done, n.Name); add {
		a.done[n.Name] = n
	}
	cidr, far := n.PodCIDRs[0], n.Addrs[0]
	route := &netlink.Route{Dst: ipNet(cidr), Gw: far.AsSlice(), LinkIndex: dev}
	if a.backend == backendHostGW {
		if a.listRoutes && add {
			return a.listThenAdd(route)
		}
		return a.route(route, add)
	}
	mac, err := publishedMAC(n)
	if err != nil {
		return err
	}
	route.Gw = cidr.Addr().AsSlice()
	route.Flags = int(netlink.FLAG_ONLINK)
	neigh := &netlink.Neigh{
		LinkIndex: dev, State: netlink.NUD_PERMANENT, Type: unix.RTN_UNICAST, IP: cidr.Addr().AsSlice(), HardwareAddr: mac,
	}
	fdb := &netlink.Neigh{
		LinkIndex: dev, State: netlink.NUD_PERMANENT, Family: unix.AF_BRIDGE, Flags: netlink.NTF_SELF, IP: far.AsSlice(),
		HardwareAddr: mac,
	}
	set := netlink.NeighSet
	if !add {
		set = netlink.NeighDel
	}
	for _, entry := range []*netlink.Neigh{neigh, fdb} {
		a.count += 2
		if err := set(entry); err != nil {
			return err
		}
	}
	return a.route(route, add)
}

func (a *sequentialApplier) route(r *netlink.Route, add bool) error {
	a.count += 2
	if add {
		return netlink.RouteReplace(r)
	}
	return netlink.RouteDel(r)
}

// listThenAdd lists the routes twice before the addition and once after it.
func (a *sequentialApplier) listThenAdd(r *netlink.Route) error {
	for range 2 {
		if err := a.list(r); err != nil {
			return err
		}
	}
	a.count += 2
	if err := netlink.RouteAdd(r); err != nil {
		return err
	}
	return a.list(r)
}

// list lists all routes; netlink filters by destination in user space.
func (a *sequentialApplier) list(r *netlink.Route) error {
	_, err := netlink.RouteListFiltered(netlink.FAMILY_V4, &netlink.Route{Dst: r.Dst}, netlink.RT_FILTER_DST)
	a.count += 2 + len(a.done)
	return err
}

func publishedMAC(n model.Node) (net.HardwareAddr, error) {
	var data struct{ VTEPMAC string }
	if err := json.Unmarshal([]byte(n.Published.Data), &data); err != nil {
		return nil, err
	}
	return net.ParseMAC(data.VTEPMAC)
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}
