// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os/exec"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/netns"
)

// weftProtocol is the protocol number of weft's routes.
const weftProtocol = 119

// repairNode reads and changes the node's kernel state with a netlink library other than weft's driver.
type repairNode struct {
	ns     *netns.NS
	handle *netlink.Handle
	routes []netlink.Route // of all pods
	neighs int             // number of permanent neighbors
	links  int             // number of links that are up
	rules  string
}

// repairPod is one pod and its kernel objects.
type repairPod struct {
	*pod
	link   netlink.Link    // host interface
	route  netlink.Route   // to its IPv4 address
	neigh  netlink.Neigh   // of that address
	addr   *netlink.Addr   // in the pod
	eth0   netlink.Link    // in the pod
	handle *netlink.Handle // of the pod's namespace
}

// repairDrift is a kind of drift: how to cause it, and how to detect the repair.
type repairDrift struct {
	name     string
	inPod    bool
	remove   func([]*repairPod) error
	restored func([]*repairPod) (bool, error)
}

func newRepairNode(ns *netns.NS) (*repairNode, error) {
	n := &repairNode{ns: ns}
	err := ns.Do(func() (err error) {
		n.handle, err = netlink.NewHandle(unix.NETLINK_ROUTE)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("bench: netlink in the node: %w", err)
	}
	return n, nil
}

func (n *repairNode) close() { n.handle.Close() }

// snapshot records the kernel objects of the pods.
func (n *repairNode) snapshot(pods []*repairPod) (err error) {
	if n.routes, err = n.podRoutes(); err != nil {
		return err
	}
	neighs, err := n.permanentNeighs()
	if err != nil {
		return err
	}
	n.neighs = len(neighs)
	if n.links, err = n.upLinks(); err != nil {
		return err
	}
	if n.rules, err = n.nft("-s", "list", "ruleset"); err != nil {
		return err
	}
	for _, p := range pods {
		if err := n.snapshotPod(p, neighs); err != nil {
			return err
		}
	}
	return nil
}

func (n *repairNode) snapshotPod(p *repairPod, neighs []netlink.Neigh) error {
	err := p.ns.Do(func() (err error) {
		if p.handle, err = netlink.NewHandle(unix.NETLINK_ROUTE); err != nil {
			return err
		}
		if p.eth0, err = p.handle.LinkByName("eth0"); err != nil {
			return err
		}
		addrs, err := p.handle.AddrList(p.eth0, netlink.FAMILY_V4)
		if err == nil && len(addrs) != 1 {
			err = fmt.Errorf("%d IPv4 addresses", len(addrs))
		}
		if err == nil {
			p.addr = &addrs[0]
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("bench: pod: %w", err)
	}
	for _, r := range n.routes {
		if r.Dst != nil && r.Dst.IP.Equal(p.addr.IP) {
			p.route = r
		}
	}
	for _, e := range neighs {
		if e.IP.Equal(p.addr.IP) {
			p.neigh = e
		}
	}
	if p.route.Dst == nil || p.neigh.IP == nil {
		return fmt.Errorf("bench: pod %s has no route or no neighbor entry on its node", p.addr.IP)
	}
	p.link, err = n.handle.LinkByIndex(p.route.LinkIndex)
	if err != nil {
		return fmt.Errorf("bench: host interface of pod %s: %w", p.addr.IP, err)
	}
	return nil
}

// podRoutes returns weft's routes on the node.
func (n *repairNode) podRoutes() ([]netlink.Route, error) {
	return n.handle.RouteListFiltered(netlink.FAMILY_ALL, &netlink.Route{Protocol: weftProtocol},
		netlink.RT_FILTER_PROTOCOL)
}

// permanentNeighs returns the permanent neighbors, which are those of pods.
func (n *repairNode) permanentNeighs() ([]netlink.Neigh, error) {
	all, err := n.handle.NeighListExecute(netlink.Ndmsg{Family: unix.AF_INET, State: unix.NUD_PERMANENT})
	var out []netlink.Neigh
	for _, e := range all {
		if e.State == unix.NUD_PERMANENT {
			out = append(out, e)
		}
	}
	return out, err
}

// upLinks returns the number of links that are up.
func (n *repairNode) upLinks() (count int, err error) {
	links, err := n.handle.LinkList()
	for _, l := range links {
		if l.Attrs().Flags&net.FlagUp != 0 {
			count++
		}
	}
	return count, err
}

// nft runs the program nft in the node's namespace and returns its output.
func (n *repairNode) nft(args ...string) (string, error) {
	cmd := exec.Command("nft", args...)
	var out, failed bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &failed
	if err := n.ns.Do(cmd.Start); err != nil {
		return "", fmt.Errorf("bench: nft: %w", err)
	}
	if err := cmd.Wait(); err != nil {
		return "", fmt.Errorf("bench: nft: %w: %s", err, failed.String())
	}
	return out.String(), nil
}

// podDrifts returns the kinds of drift at one pod.
func (n *repairNode) podDrifts() []repairDrift {
	return []repairDrift{
		{
			name: "route on the node", remove: func(p []*repairPod) error { return n.handle.RouteDel(&p[0].route) },
			restored: n.routeRestored,
		},
		{
			name: "neighbor on the node", remove: func(p []*repairPod) error { return n.handle.NeighDel(&p[0].neigh) },
			restored: n.neighRestored,
		},
		{
			name: "host interface down", remove: func(p []*repairPod) error { return n.handle.LinkSetDown(p[0].link) },
			restored: func(p []*repairPod) (bool, error) {
				l, err := n.handle.LinkByIndex(p[0].link.Attrs().Index)
				if err != nil || l.Attrs().Flags&net.FlagUp == 0 {
					return false, err
				}
				route, err := n.routeRestored(p)
				if err != nil || !route {
					return false, err
				}
				return n.neighRestored(p)
			},
		},
		{name: "address in the pod", inPod: true, remove: func(p []*repairPod) error {
			return p[0].handle.AddrDel(p[0].eth0, p[0].addr)
		}, restored: func(p []*repairPod) (bool, error) {
			addrs, err := p[0].handle.AddrList(p[0].eth0, netlink.FAMILY_V4)
			return len(addrs) > 0, err
		}},
	}
}

func (n *repairNode) routeRestored(p []*repairPod) (bool, error) {
	found, err := n.handle.RouteListFiltered(netlink.FAMILY_V4, &netlink.Route{Dst: p[0].route.Dst}, netlink.RT_FILTER_DST)
	return len(found) > 0, err
}

func (n *repairNode) neighRestored(p []*repairPod) (bool, error) {
	found, err := n.handle.NeighList(p[0].neigh.LinkIndex, netlink.FAMILY_V4)
	for _, e := range found {
		if e.IP.Equal(p[0].neigh.IP) && e.State == unix.NUD_PERMANENT {
			return true, err
		}
	}
	return false, err
}

// flushDrifts returns the kinds of drift at all pods.
func (n *repairNode) flushDrifts() []repairDrift {
	routes := func([]*repairPod) (bool, error) {
		have, err := n.podRoutes()
		return len(have) >= len(n.routes), err
	}
	return []repairDrift{
		{name: "routes, both families", remove: func([]*repairPod) error {
			var errs []error
			for _, r := range n.routes {
				// ESRCH: the agent repaired it in between, and it was deleted again.
				if err := n.handle.RouteDel(&r); !errors.Is(err, unix.ESRCH) {
					errs = append(errs, err)
				}
			}
			return errors.Join(errs...)
		}, restored: routes},
		{name: "host interfaces down", remove: func(pods []*repairPod) error {
			var errs []error
			for _, p := range pods {
				errs = append(errs, n.handle.LinkSetDown(p.link))
			}
			return errors.Join(errs...)
		}, restored: func(p []*repairPod) (bool, error) {
			if links, err := n.upLinks(); err != nil || links < n.links {
				return false, err
			}
			if neighs, err := n.permanentNeighs(); err != nil || len(neighs) < n.neighs {
				return false, err
			}
			return routes(p)
		}},
		{name: "rules (nft flush ruleset)", remove: func([]*repairPod) error {
			_, err := n.nft("flush", "ruleset")
			return err
		}, restored: func([]*repairPod) (bool, error) {
			have, err := n.nft("-s", "list", "ruleset")
			return have == n.rules, err
		}},
	}
}
