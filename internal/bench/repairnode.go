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

// weftProtocol is the number that weft's routes bear.
const weftProtocol = 119

// repairNode looks at the node's kernel and takes things away, by another library than weft's own driver.
type repairNode struct {
	ns     *netns.NS
	handle *netlink.Handle
	routes []netlink.Route // of all pods
	neighs int             // permanent ones
	links  int
	rules  string
}

// repairPod is one pod and what it has.
type repairPod struct {
	*pod
	link  netlink.Link    // the node's end
	route netlink.Route   // to its IPv4 address
	neigh netlink.Neigh   // of that address
	addr  *netlink.Addr   // in the pod
	eth0  netlink.Link    // in the pod
	kept  *netlink.Handle // of the pod's namespace
}

// repairDrift is one way to take something away, and to see that it is there again.
type repairDrift struct {
	name  string
	inPod bool
	take  func([]*repairPod) error
	there func([]*repairPod) (bool, error)
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

// learn notes what there is of the pods.
func (n *repairNode) learn(pods []*repairPod) (err error) {
	if n.routes, err = n.ofPods(); err != nil {
		return err
	}
	neighs, err := n.permanent()
	if err != nil {
		return err
	}
	n.neighs = len(neighs)
	if n.links, err = n.up(); err != nil {
		return err
	}
	if n.rules, err = n.nft("-s", "list", "ruleset"); err != nil {
		return err
	}
	for _, p := range pods {
		if err := n.learnPod(p, neighs); err != nil {
			return err
		}
	}
	return nil
}

func (n *repairNode) learnPod(p *repairPod, neighs []netlink.Neigh) error {
	err := p.ns.Do(func() (err error) {
		if p.kept, err = netlink.NewHandle(unix.NETLINK_ROUTE); err != nil {
			return err
		}
		if p.eth0, err = p.kept.LinkByName("eth0"); err != nil {
			return err
		}
		addrs, err := p.kept.AddrList(p.eth0, netlink.FAMILY_V4)
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
		return fmt.Errorf("bench: pod %s has no route or no neighbor on its node", p.addr.IP)
	}
	p.link, err = n.handle.LinkByIndex(p.route.LinkIndex)
	if err != nil {
		return fmt.Errorf("bench: the node's end of pod %s: %w", p.addr.IP, err)
	}
	return nil
}

// ofPods are weft's routes on the node.
func (n *repairNode) ofPods() ([]netlink.Route, error) {
	return n.handle.RouteListFiltered(netlink.FAMILY_ALL, &netlink.Route{Protocol: weftProtocol},
		netlink.RT_FILTER_PROTOCOL)
}

// permanent are the neighbors of pods.
func (n *repairNode) permanent() ([]netlink.Neigh, error) {
	all, err := n.handle.NeighListExecute(netlink.Ndmsg{Family: unix.AF_INET, State: unix.NUD_PERMANENT})
	var out []netlink.Neigh
	for _, e := range all {
		if e.State == unix.NUD_PERMANENT {
			out = append(out, e)
		}
	}
	return out, err
}

// up counts links that are up.
func (n *repairNode) up() (count int, err error) {
	links, err := n.handle.LinkList()
	for _, l := range links {
		if l.Attrs().Flags&net.FlagUp != 0 {
			count++
		}
	}
	return count, err
}

// nft is the kernel's own view of rules, by nft's own program.
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

// singles are the ways to take one thing from one pod.
func (n *repairNode) singles() []repairDrift {
	return []repairDrift{
		{
			name: "route on the node", take: func(p []*repairPod) error { return n.handle.RouteDel(&p[0].route) },
			there: n.routeThere,
		},
		{
			name: "neighbor on the node", take: func(p []*repairPod) error { return n.handle.NeighDel(&p[0].neigh) },
			there: n.neighThere,
		},
		{
			name: "node's end down", take: func(p []*repairPod) error { return n.handle.LinkSetDown(p[0].link) },
			there: func(p []*repairPod) (bool, error) {
				l, err := n.handle.LinkByIndex(p[0].link.Attrs().Index)
				if err != nil || l.Attrs().Flags&net.FlagUp == 0 {
					return false, err
				}
				route, err := n.routeThere(p)
				if err != nil || !route {
					return false, err
				}
				return n.neighThere(p)
			},
		},
		{name: "address in the pod", inPod: true, take: func(p []*repairPod) error {
			return p[0].kept.AddrDel(p[0].eth0, p[0].addr)
		}, there: func(p []*repairPod) (bool, error) {
			addrs, err := p[0].kept.AddrList(p[0].eth0, netlink.FAMILY_V4)
			return len(addrs) > 0, err
		}},
	}
}

func (n *repairNode) routeThere(p []*repairPod) (bool, error) {
	found, err := n.handle.RouteListFiltered(netlink.FAMILY_V4, &netlink.Route{Dst: p[0].route.Dst}, netlink.RT_FILTER_DST)
	return len(found) > 0, err
}

func (n *repairNode) neighThere(p []*repairPod) (bool, error) {
	found, err := n.handle.NeighList(p[0].neigh.LinkIndex, netlink.FAMILY_V4)
	for _, e := range found {
		if e.IP.Equal(p[0].neigh.IP) && e.State == unix.NUD_PERMANENT {
			return true, err
		}
	}
	return false, err
}

// flushes are the ways to take something from all pods at once.
func (n *repairNode) flushes() []repairDrift {
	routes := func([]*repairPod) (bool, error) {
		have, err := n.ofPods()
		return len(have) >= len(n.routes), err
	}
	return []repairDrift{
		{name: "routes, both families", take: func([]*repairPod) error {
			var errs []error
			for _, r := range n.routes {
				if err := n.handle.RouteDel(&r); !errors.Is(err, unix.ESRCH) { // it was put back and deleted between
					errs = append(errs, err)
				}
			}
			return errors.Join(errs...)
		}, there: routes},
		{name: "nodes' ends down", take: func(pods []*repairPod) error {
			var errs []error
			for _, p := range pods {
				errs = append(errs, n.handle.LinkSetDown(p.link))
			}
			return errors.Join(errs...)
		}, there: func(p []*repairPod) (bool, error) {
			if links, err := n.up(); err != nil || links < n.links {
				return false, err
			}
			if neighs, err := n.permanent(); err != nil || len(neighs) < n.neighs {
				return false, err
			}
			return routes(p)
		}},
		{name: "rules (nft flush ruleset)", take: func([]*repairPod) error {
			_, err := n.nft("flush", "ruleset")
			return err
		}, there: func([]*repairPod) (bool, error) {
			have, err := n.nft("-s", "list", "ruleset")
			return have == n.rules, err
		}},
	}
}
