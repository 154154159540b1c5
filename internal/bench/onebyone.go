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

// singleHand makes one request after the other by netlink's package-level functions, which open a socket for each, as
// flannel does. It remembers what it did and reads nothing that flannel does not read.
type singleHand struct {
	ns      *netns.NS
	backend string
	// listed asks for the routes before each one, as flannel's host-gw does.
	listed bool
	done   map[string]model.Node
	dev    int
	count  int
}

func (h *singleHand) messages() int { return h.count }

// pass measures the requests alone, not how it finds out which: flannel is told what changed.
func (h *singleHand) pass(_ context.Context, c *model.Cluster) (took time.Duration, err error) {
	var todo []func(dev int) error
	now := make(map[string]bool, len(c.Nodes))
	for _, n := range c.Nodes {
		now[n.Name] = true
		if have, ok := h.done[n.Name]; n.Name != c.Self && (!ok || !have.Published.Equal(n.Published)) {
			todo = append(todo, func(dev int) error { return h.peer(dev, n, true) })
		}
	}
	for name, n := range h.done {
		if !now[name] {
			todo = append(todo, func(dev int) error { return h.peer(dev, n, false) })
		}
	}
	err = h.ns.Do(func() error {
		start := time.Now()
		dev, err := h.device()
		for i := 0; i < len(todo) && err == nil; i++ {
			err = todo[i](dev)
		}
		took = time.Since(start)
		return err
	})
	return took, err
}

// device is the link that routes to peers go over; a tunnel is made when it is not there.
func (h *singleHand) device() (int, error) {
	if h.dev != 0 {
		return h.dev, nil
	}
	h.done = map[string]model.Node{}
	up, err := netlink.LinkByName("up0")
	if err != nil {
		return 0, err
	}
	h.count += 2
	if h.dev = up.Attrs().Index; h.backend == backendHostGW {
		return h.dev, nil
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
	h.count += 6
	h.dev = dev.Attrs().Index
	return h.dev, netlink.LinkSetUp(dev)
}

// peer makes or takes away what leads to one peer.
func (h *singleHand) peer(dev int, n model.Node, add bool) error {
	if delete(h.done, n.Name); add {
		h.done[n.Name] = n
	}
	cidr, far := n.PodCIDRs[0], n.Addrs[0]
	route := &netlink.Route{Dst: ipNet(cidr), Gw: far.AsSlice(), LinkIndex: dev}
	if h.backend == backendHostGW {
		if h.listed && add {
			return h.listThenAdd(route)
		}
		return h.route(route, add)
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
		h.count += 2
		if err := set(entry); err != nil {
			return err
		}
	}
	return h.route(route, add)
}

func (h *singleHand) route(r *netlink.Route, add bool) error {
	h.count += 2
	if add {
		return netlink.RouteReplace(r)
	}
	return netlink.RouteDel(r)
}

// listThenAdd looks for the route twice before it is added and once afterwards.
func (h *singleHand) listThenAdd(r *netlink.Route) error {
	for range 2 {
		if err := h.list(r); err != nil {
			return err
		}
	}
	h.count += 2
	if err := netlink.RouteAdd(r); err != nil {
		return err
	}
	return h.list(r)
}

// list reads all routes; those of the destination are chosen afterwards.
func (h *singleHand) list(r *netlink.Route) error {
	_, err := netlink.RouteListFiltered(netlink.FAMILY_V4, &netlink.Route{Dst: r.Dst}, netlink.RT_FILTER_DST)
	h.count += 2 + len(h.done)
	return err
}

func publishedMAC(n model.Node) (net.HardwareAddr, error) {
	var data struct{ VtepMAC string }
	if err := json.Unmarshal([]byte(n.Published.Data), &data); err != nil {
		return nil, err
	}
	return net.ParseMAC(data.VtepMAC)
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}
