// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"fmt"
	"net/netip"
	"strings"
)

// guest checks the guest behind a pod's interface: its tap, the tap's join with the interface, and whether the guest
// answers for its address.
type guest struct {
	*walk
	h *Hop
	e End
}

// check checks the guest. dev is the node's interface that leads to the pod, empty if it is not known; link is the pod's
// interface.
func (g guest) check(dev string, link *Link) {
	name, known := g.e.Interface.Tap, g.e.Interface.Tap != ""
	if !known {
		name = tapName(g.e.Interface.Name)
	}
	tap := g.tap(name, known)
	if tap == nil {
		return
	}
	if g.e.Interface.Joined {
		g.join(name)
	}
	if tap.Up && tap.Carrier {
		g.lease(name, dev, link)
	}
	behindNAT := len(g.e.Interface.Leases) > 0
	if tap.Master != "" && !behindNAT && dev != "" && dev == g.e.Interface.HostLink && g.e.Addr.Is4() {
		g.gateway(dev)
	}
}

// gateway checks whether the node answers the ARP requests of a guest in a bridge for the gateway of routed pods. The pod
// itself has a permanent entry for it.
func (g guest) gateway(dev string) {
	gateway := netip.AddrFrom4([4]byte{169, 254, 1, 1})
	a, ok := g.ask(g.h, Question{Node: g.e.Node, Kind: AskRoute, From: g.e.Addr, To: gateway, In: dev})
	if ok && (a.Route.Type != "unicast" || a.Route.Out == dev) {
		g.h.blocked(fmt.Sprintf("%s has no route to %s, and so does not answer the guest's ARP requests for its gateway", g.e.Node,
			gateway), "routes of node "+g.e.Node, "add a default route on the node, or use the binding weft-direct")
	}
}

// tapName is the tap that belongs to a pod's interface as KubeVirt and weft name them: tap0 to eth0, tap1 to net1,
// tap5d1c67f1a25 to pod5d1c67f1a25.
func tapName(podLink string) string {
	const prefix = 3 // eth, net, pod
	return "tap" + podLink[min(prefix, len(podLink)):]
}

// renamedLink is the name of a pod's interface with the bridge binding: eth0-nic, 5d1c67f1a25-nic.
func renamedLink(podLink string) string { return strings.TrimPrefix(podLink, "pod") + "-nic" }

// tap checks the tap, and returns it if it is there. One that is not recorded on the node may have another name.
func (g guest) tap(name string, recorded bool) *Link {
	q := Question{Node: g.e.Node, Pod: g.e.Name, Kind: AskLink, Link: name}
	object, where := fmt.Sprintf("interface %s of pod %s", name, g.e.Name), "in the pod"
	if g.e.Interface.TapOnNode {
		q.Pod, object, where = "", fmt.Sprintf("interface %s of node %s", name, g.e.Node), "on "+g.e.Node
	}
	a, ok := g.ask(g.h, q)
	switch {
	case !ok:
		return nil
	case a.Link == nil && recorded:
		g.h.blocked("the VM's tap is gone", object, "restart the VM")
		return nil
	case a.Link == nil:
		g.h.unknown("the pod has no "+name+": how its VM is connected is not known, nor whether it runs", object)
		return nil
	case !a.Link.Up:
		g.h.blocked("the VM's tap is down", object, "ip link set "+name+" up, "+where+"; find out who sets it down")
	case !a.Link.Carrier:
		g.h.blocked("no hypervisor has the VM's tap open", object, "see whether the VM runs")
	case a.Link.Master != "":
		g.h.evidence(fmt.Sprintf("a hypervisor has %s open, a port of %s", name, a.Link.Master))
	default:
		g.h.evidence("a hypervisor has " + name + " open")
	}
	return a.Link
}

// join checks whether the tap is connected with the pod's interface without a bridge.
func (g guest) join(tap string) {
	name := g.e.Interface.Name
	a, ok := g.ask(g.h, Question{Node: g.e.Node, Pod: g.e.Name, Kind: AskJoin, Link: name, Name: tap})
	switch {
	case !ok:
	case a.Value == "":
		g.h.blocked(fmt.Sprintf("%s and %s are not joined: no frame passes between the guest and the pod's network", tap, name),
			fmt.Sprintf("interface %s of pod %s", tap, g.e.Name),
			"the agent joins them again within seconds; if it happens again and again, find the program that removes it")
	default:
		g.h.evidence(fmt.Sprintf("%s and %s are joined (%s)", tap, name, a.Value))
	}
}

// lease checks whether the guest answers for the address that it should have taken.
func (g guest) lease(tap, dev string, link *Link) {
	q := Question{Node: g.e.Node, Kind: AskResolve, Link: dev, To: g.e.Addr}
	if g.e.Interface.Joined && q.To.Is6() { // by IPv4 the pod would ask with the guest's own address
		q.Pod, q.Link = g.e.Name, tap
	}
	for _, a := range g.e.Interface.Leases { // of a guest behind NAT
		if a.Is6() == g.e.Addr.Is6() {
			q.Pod, q.Link, q.To = g.e.Name, g.e.Interface.LeaseLink, a
		}
	}
	if q.Link == "" {
		g.h.evidence("the guest's own addresses and routes are not read")
		return
	}
	a, ok := g.ask(g.h, q)
	n := a.Neighbor
	switch {
	case !ok:
	case !resolved(n):
		g.h.suspect(fmt.Sprintf("the guest does not answer for its address %s: it has not taken its lease, or does not run", q.To),
			"guest of pod "+g.e.Name, "see the guest's console: "+g.e.Interface.Name+"'s address comes by "+protocolsOf(q.To.Is6()))
	case n.State == "permanent":
		g.h.evidence(fmt.Sprintf("%s is at %s, by a permanent entry: whether the guest has taken its lease is not read", q.To,
			n.MAC))
	case q.Pod == "" && link != nil && n.MAC == link.MAC && !g.e.Interface.Joined:
		g.h.evidence("the pod itself answers for the address: the guest's own addresses and routes are not read")
	default:
		g.h.evidence(fmt.Sprintf("the guest has its address %s, at %s (%s); its routes are not read", q.To, n.MAC, n.State))
	}
}

// protocolsOf are the protocols by which a guest gets an address.
func protocolsOf(six bool) string {
	if six {
		return "DHCPv6 and router advertisements"
	}
	return "DHCP"
}
