// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"fmt"
	"strings"
)

// source checks the pod that sends, and returns the node's interface on which its packets arrive.
func (w *walk) source(l leg) (in string, ok bool) {
	e := l.src
	h := &Hop{ID: "source", Where: e.Name + " on " + e.Node}
	if !w.attached(h, e) {
		w.add(h)
		return "", false
	}
	link := w.podLink(h, e)
	gateway := ""
	if !e.Interface.VM {
		w.podAddress(h, e)
		gateway = w.podRoute(h, l, link)
	}
	if e.Interface.HostLink == "" {
		h.unknown(
			"the interface "+e.Interface.Name+" of "+e.Name+" has no end on the node: the network of its parent carries it",
			"interface "+e.Interface.Name,
		)
		w.add(h)
		return "", false
	}
	in, mac, ok := w.hostLink(h, e)
	if e.Interface.VM {
		guest{w, h, e}.check(in, link)
	} else if ok && gateway != "" {
		w.podNeighbor(h, l, gateway, mac)
	}
	w.add(h)
	if !e.Interface.VM {
		w.filter(l, e.Node, e.Name, "", e.Interface.Name, "output", "postrouting")
	}
	if ok && in != e.Interface.HostLink {
		w.portFilter(l, e, e.Interface.HostLink, "", "ingress", "bridge prerouting", w.bridged(l, in, "bridge input"))
	}
	return in, ok
}

// bridged returns the hook of a bridge between its ports if both ends are ports of it, and otherwise the one for packets
// of the node.
func (w *walk) bridged(l leg, bridge, otherwise string) string {
	if l.src.Kind != PodEnd || l.dst.Kind != PodEnd || l.src.Node != l.dst.Node {
		return otherwise
	}
	for _, e := range []End{l.src, l.dst} {
		a, ok := w.ask(&Hop{}, Question{Node: e.Node, Kind: AskLink, Link: e.Interface.HostLink})
		if !ok || a.Link == nil || a.Link.Master != bridge {
			return otherwise
		}
	}
	return "bridge forward"
}

// portFilter checks the packet filters of other programs in a bridge, at the port of a pod.
func (w *walk) portFilter(l leg, e End, in, out string, hooks ...string) {
	h := &Hop{ID: "filter", Where: e.Node}
	if a, ok := w.ask(h, Question{Node: e.Node, Kind: AskChains, To: family(l.dst.Addr)}); ok {
		p := l.packet(in, out)
		p.state = "" // the bridge may track connections by itself
		w.checkFilters(h, *a.Chains, p, hooks)
	}
	w.programs(h, e.Node, "", in, out)
	if h.State != "" || len(h.Evidence) > 0 {
		w.add(h)
	}
}

// attached checks whether the pod has a network at all.
func (w *walk) attached(h *Hop, e End) bool {
	switch {
	case e.Stage == "pending":
		h.blocked("the pod's network is being set up", "pod "+e.Name, "see the pod's events, and the agent's log")
	case e.Stage == "releasing":
		h.blocked("the pod's network is being removed", "pod "+e.Name, "the pod is deleted")
	case e.Interface.Name == "":
		h.blocked(e.Addr.String()+" is no address of the pod: the source guard drops its packets", "address "+e.Addr.String(),
			"use an address that the pod has")
	default:
		return true
	}
	return false
}

// podLink checks the pod's interface.
func (w *walk) podLink(h *Hop, e End) *Link {
	name := e.Interface.Name
	a, ok := w.ask(h, Question{Node: e.Node, Pod: e.Name, Kind: AskLink, Link: name})
	if ok && e.Interface.VM && a.Link != nil && !a.Link.Up {
		// The bridge binding renames the interface, and leaves a stand-in with its name and addresses, which is down.
		renamed := renamedLink(name)
		if b, answered := w.ask(h, Question{Node: e.Node, Pod: e.Name, Kind: AskLink, Link: renamed}); !answered {
			return nil
		} else if b.Link != nil {
			name, a = renamed, b
		}
	}
	object := fmt.Sprintf("interface %s of pod %s", name, e.Name)
	switch {
	case !ok:
		return nil
	case a.Link == nil:
		h.blocked("the pod has no interface "+name, object, "recreate the pod")
		return nil
	case !a.Link.Up:
		h.blocked("the pod's interface is down", object, "ip link set "+name+" up, in the pod; find out who sets it down")
	case !a.Link.Carrier:
		h.evidence(name + " has no carrier")
	default:
		h.evidence(fmt.Sprintf("%s is up, MTU %d", name, a.Link.MTU))
	}
	return a.Link
}

// podAddress checks whether the pod has its address.
func (w *walk) podAddress(h *Hop, e End) {
	a, ok := w.ask(h, Question{Node: e.Node, Pod: e.Name, Kind: AskAddress, To: e.Addr})
	if ok && a.Value == "" {
		h.blocked("the pod does not have its address "+e.Addr.String(), fmt.Sprintf("address %s of pod %s", e.Addr, e.Name),
			"the agent restores it; if it is removed again and again, find the program that removes it")
	}
}

// podRoute checks the pod's route, and returns the address that it resolves to a MAC address; "" if there is none.
func (w *walk) podRoute(h *Hop, l leg, link *Link) (next string) {
	e := l.src
	a, ok := w.ask(h, Question{Node: e.Node, Pod: e.Name, Kind: AskRoute, From: l.src.Addr, To: l.dst.Addr})
	if !ok {
		return ""
	}
	r := a.Route
	object := fmt.Sprintf("routes of pod %s", e.Name)
	switch {
	case r.Errno == "ENETUNREACH":
		if link == nil || !link.Up { // the kernel has removed the routes
			return ""
		}
		h.blocked("the pod has no route to "+l.dst.Addr.String(), object,
			"the agent restores the pod's routes; see weft doctor")
		return ""
	case r.Errno != "" || r.Type != "unicast" && r.Type != "local":
		h.blocked(
			fmt.Sprintf("the pod's route to %s refuses packets (%s)", l.dst.Addr, strings.TrimSpace(r.Errno+" "+r.Type)),
			object,
			"ip route get "+l.dst.Addr.String()+", in the pod",
		)
		return ""
	case r.Type == "local":
		h.evidence(l.dst.Addr.String() + " is an address of the pod itself")
		return ""
	}
	text := "route over " + r.Out
	if r.Gateway.IsValid() {
		text += " via " + r.Gateway.String()
	}
	if r.Learned {
		text += fmt.Sprintf(", path MTU %d learned", r.MTU)
	}
	h.evidence(text)
	if r.Out != e.Interface.Name {
		h.suspect(fmt.Sprintf("the pod sends packets from %s over %s, not %s", e.Addr, r.Out, e.Interface.Name), object,
			"the answer may be dropped; see the pod's networks")
		return ""
	}
	if r.Gateway.IsValid() {
		return r.Gateway.String()
	}
	return l.dst.Addr.String()
}

// hostLink checks the node's end of a pod's interface, and returns the interface on which its packets arrive (that end,
// or its bridge) and the MAC address that the pod sends to.
func (w *walk) hostLink(h *Hop, e End) (in string, mac string, ok bool) {
	name := e.Interface.HostLink
	a, ok := w.ask(h, Question{Node: e.Node, Kind: AskLink, Link: name})
	if !ok {
		return "", "", false
	}
	object := fmt.Sprintf("interface %s of node %s", name, e.Node)
	switch {
	case a.Link == nil:
		h.blocked("the node's end of the pod's interface is gone", object, "recreate the pod")
		return "", "", false
	case !a.Link.Up:
		h.blocked("the node's end of the pod's interface is down", object,
			"the agent sets it up; find out who sets it down (systemd-networkd, NetworkManager)")
	}
	if a.Link.Master == "" {
		return name, a.Link.MAC.String(), true
	}
	h.evidence(name + " is a port of " + a.Link.Master)
	b, ok := w.ask(h, Question{Node: e.Node, Kind: AskLink, Link: a.Link.Master})
	switch {
	case !ok:
		return "", "", false
	case b.Link == nil || !b.Link.Up:
		h.blocked("the pods' bridge is down", fmt.Sprintf("interface %s of node %s", a.Link.Master, e.Node),
			"ip link set "+a.Link.Master+" up")
		return a.Link.Master, "", b.Link != nil
	}
	return a.Link.Master, b.Link.MAC.String(), true
}

// podNeighbor checks the pod's neighbor entry of its gateway, whose MAC address must be the node's.
func (w *walk) podNeighbor(h *Hop, l leg, next, mac string) {
	e := l.src
	if next == l.dst.Addr.String() {
		if l.dst.Kind != PodEnd || l.dst.Node != e.Node {
			return
		}
		target, ok := w.ask(h, Question{Node: l.dst.Node, Pod: l.dst.Name, Kind: AskLink, Link: l.dst.Interface.Name})
		if !ok || target.Link == nil {
			return
		}
		mac = target.Link.MAC.String()
	}
	a, ok := w.ask(h, Question{Node: e.Node, Pod: e.Name, Kind: AskNeighbor, Link: e.Interface.Name, To: addr(next)})
	if !ok || a.Neighbor == nil {
		return // the kernel resolves it
	}
	object := fmt.Sprintf("neighbor %s of pod %s", next, e.Name)
	switch {
	case a.Neighbor.State == "failed":
		h.suspect("the pod got no answer to its ARP or neighbor discovery requests for "+next, object, "")
	case resolved(a.Neighbor) && mac != "" && a.Neighbor.MAC.String() != mac:
		h.blocked(fmt.Sprintf("the pod sends to MAC address %s, and %s has %s", a.Neighbor.MAC, next, mac), object,
			"ip neigh del "+next+" dev "+e.Interface.Name+", in the pod")
	default:
		h.evidence(fmt.Sprintf("%s is at %s (%s)", next, a.Neighbor.MAC, a.Neighbor.State))
	}
}

// deliver checks the last hops: the node's interface to the pod, the pod, and its socket.
func (w *walk) deliver(l leg, dev string) {
	e := l.dst
	h := &Hop{ID: "target", Where: e.Name + " on " + e.Node}
	link := w.podLink(h, e)
	if !e.Interface.VM {
		w.podAddress(h, e)
	}
	out, _, ok := w.hostLink(h, e)
	if e.Interface.VM {
		guest{w, h, e}.check(dev, link)
	}
	if ok && link != nil && link.Up {
		a, ok := w.ask(h, Question{Node: e.Node, Kind: AskNeighbor, Link: dev, To: e.Addr})
		object := fmt.Sprintf("neighbor %s of node %s", e.Addr, e.Node)
		switch {
		case !ok, a.Neighbor == nil: // the kernel resolves it
		case a.Neighbor.State == "failed":
			h.suspect("the node got no answer to its ARP or neighbor discovery requests for "+e.Addr.String(), object, "")
		case !e.Interface.VM && resolved(a.Neighbor) && a.Neighbor.MAC != link.MAC:
			h.blocked(fmt.Sprintf("the node sends to MAC address %s, and the pod has %s", a.Neighbor.MAC, link.MAC), object,
				fmt.Sprintf("ip neigh del %s dev %s, on %s", e.Addr, dev, e.Node))
		}
	}
	w.add(h)
	if ok && out != e.Interface.HostLink {
		w.portFilter(l, e, "", e.Interface.HostLink, w.bridged(l, out, "bridge output"), "bridge postrouting", "egress")
	}
	if !e.Interface.VM {
		w.filter(l, e.Node, e.Name, e.Interface.Name, "", "prerouting", "input")
	}
	w.policy(l, e, "ingress")
	w.listener(l, e.Node, e.Name, e.Interface.VM)
}

// listener checks whether a socket receives the packets.
func (w *walk) listener(l leg, node, pod string, guest bool) {
	if l.reply || l.protocol == "" {
		return
	}
	where := node
	if pod != "" {
		where = pod + " on " + node
	}
	h := &Hop{ID: "listener", Where: where}
	if guest {
		h.unknown("the sockets of the guest are not read", "")
		w.add(h)
		return
	}
	a, ok := w.ask(h, Question{Node: node, Pod: pod, Kind: AskSocket, Protocol: l.protocol, To: l.dst.Addr, Port: l.port})
	port := fmt.Sprintf("port %d/%s", l.port, strings.ToLower(string(l.protocol)))
	switch {
	case !ok:
	case len(a.Sockets) == 0:
		h.blocked("no process listens on "+port, port+" of "+where, "start the server, or see on which address it listens")
	default:
		h.evidence(fmt.Sprintf("a socket listens on %s, port %d", a.Sockets[0].Addr, a.Sockets[0].Port))
	}
	w.add(h)
}
