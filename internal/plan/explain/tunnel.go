// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"fmt"
	"net/netip"

	"github.com/weft-net/weft/internal/state"
)

// overhead returns how many bytes a tunnel of that kind adds to a packet, and ok false if the kind is no tunnel.
func overhead(kind string, far netip.Addr) (bytes int, ok bool) {
	six := 0
	if far.Is6() {
		six = 20
	}
	switch kind {
	case "vxlan":
		return 50 + six, true // outer IP, UDP, VXLAN and the inner Ethernet header
	case "ipip":
		return 20 + six, true
	case "wireguard":
		return 60 + six, true
	case "tun":
		return 28 + six, true // flannel's udp
	}
	return 0, false
}

// toNode checks the way to another node, and continues there.
func (w *walk) toNode(l leg, node string, r Route, path Path) {
	far := l.dst.Node
	h := &Hop{ID: "wire", Where: node + " to " + far}
	out := r
	outer := packet{}
	if path.Tunnel {
		t := &Hop{ID: "tunnel", Where: node}
		var ok bool
		out, outer, ok = w.encapsulate(t, l, node, r, path)
		w.add(t)
		if !ok {
			w.arrive(l, node, path, packet{})
			return
		}
		w.outerFilter(node, outer, out.Out, "output", "postrouting")
	}
	w.underlay(h, node, out, path.Far, path.Far)
	w.add(h)
	w.arrive(l, node, path, outer)
}

// encapsulate checks a tunnel's sending end. It returns the route of the outer packet, and that packet.
func (w *walk) encapsulate(h *Hop, l leg, node string, r Route, path Path) (Route, packet, bool) {
	a, ok := w.ask(h, Question{Node: node, Kind: AskLink, Link: r.Out})
	if !ok {
		return Route{}, packet{}, false
	}
	object := fmt.Sprintf("interface %s of node %s", r.Out, node)
	dev := a.Link
	switch {
	case dev == nil:
		h.blocked("the tunnel's device is gone", object, "the agent restores it; see weft mesh")
		return Route{}, packet{}, false
	case !dev.Up:
		h.blocked("the tunnel's device is down", object, "the agent restores it; see weft mesh")
		return Route{}, packet{}, false
	}
	if dev.Kind == "vxlan" {
		w.vxlan(h, l, node, r, path, dev)
	}
	o, ok := w.ask(h, Question{Node: node, Kind: AskRoute, To: path.Far})
	if !ok {
		return Route{}, packet{}, false
	}
	if o.Route.Errno != "" {
		h.blocked(fmt.Sprintf("%s has no route to %s, the tunnel's other end (%s)", node, path.Far, o.Route.Errno),
			fmt.Sprintf("route to %s on %s", path.Far, node), "ip route get "+path.Far.String()+", on "+node)
		return Route{}, packet{}, false
	}
	w.split(h)
	w.tunnelMTU(h, l, node, dev, o.Route.Out, path.Far)
	return *o.Route, w.outerPacket(dev, *o.Route, path.Far), true
}

// outerPacket is the tunnel's packet for rules.
func (w *walk) outerPacket(dev *Link, r Route, far netip.Addr) packet {
	p := packet{src: r.Source, dst: far, out: r.Out, state: "new"}
	if dev.Local.IsValid() {
		p.src = dev.Local
	}
	switch dev.Kind {
	case "vxlan":
		p.protocol, p.dport = "udp", dev.UDPPort
	case "ipip":
		p.protocol = "ipip"
	default:
		p.protocol = "udp"
	}
	return p
}

// vxlan checks the neighbor and forwarding entries of a VXLAN device, and compares both devices.
func (w *walk) vxlan(h *Hop, l leg, node string, r Route, path Path, dev *Link) {
	far := l.dst.Node
	h.evidence(fmt.Sprintf("%s: VNI %d, port %d, MTU %d", dev.Name, dev.VNI, dev.UDPPort, dev.MTU))
	next := r.Gateway
	if !next.IsValid() {
		next = l.dst.Addr
	}
	var want state.MAC
	if other := w.farTunnel(h, l, far); other != nil {
		want = other.MAC
		if other.VNI != dev.VNI || other.UDPPort != dev.UDPPort {
			h.blocked(
				fmt.Sprintf("the VXLAN devices differ: %s has VNI %d and port %d, %s has VNI %d and port %d", node, dev.VNI,
					dev.UDPPort, far, other.VNI, other.UDPPort),
				fmt.Sprintf("interface %s of node %s", other.Name, far),
				"recreate the one that differs from the configuration: ip link del, and the agent creates it",
			)
			return
		}
	}
	a, ok := w.ask(h, Question{Node: node, Kind: AskNeighbor, Link: dev.Name, To: next})
	if !ok {
		return
	}
	object := fmt.Sprintf("neighbor %s of %s on %s", next, dev.Name, node)
	hint := "the agent restores it; see weft mesh and weft doctor on " + node
	switch {
	case !resolved(a.Neighbor):
		h.blocked(fmt.Sprintf("%s has no MAC address for %s in the tunnel", node, next), object, hint)
		return
	case !want.IsZero() && a.Neighbor.MAC != want:
		h.blocked(
			fmt.Sprintf("%s sends to MAC address %s in the tunnel, and the device of %s has %s", node, a.Neighbor.MAC,
				far, want),
			object,
			hint,
		)
		return
	}
	f, ok := w.ask(h, Question{Node: node, Kind: AskFDB, Link: dev.Name, MAC: a.Neighbor.MAC})
	if !ok {
		return
	}
	object = fmt.Sprintf("fdb entry %s of %s on %s", a.Neighbor.MAC, dev.Name, node)
	switch {
	case len(f.FDB) == 0:
		h.blocked(fmt.Sprintf("%s does not know to which node frames for %s go", node, a.Neighbor.MAC), object, hint)
	case path.Far.IsValid() && f.FDB[0].Dst != path.Far:
		h.blocked(
			fmt.Sprintf("%s sends frames for %s to %s, and its node has %s", node, a.Neighbor.MAC, f.FDB[0].Dst, path.Far),
			object,
			hint,
		)
	}
}

// farTunnel returns the tunnel's device at the other node; nil if it is not known or gone.
func (w *walk) farTunnel(h *Hop, l leg, far string) *Link {
	back, ok := w.in.Nodes[far].path(l.src.Addr)
	if !ok {
		return nil
	}
	a, ok := w.ask(h, Question{Node: far, Kind: AskLink, Link: back.Link})
	if !ok {
		return nil
	}
	return a.Link
}

// tunnelMTU checks whether packets of the pods' MTU fit.
func (w *walk) tunnelMTU(h *Hop, l leg, node string, dev *Link, underlay string, far netip.Addr) {
	more, ok := overhead(dev.Kind, far)
	if !ok {
		return
	}
	a, ok := w.ask(h, Question{Node: node, Kind: AskLink, Link: underlay})
	if ok && a.Link != nil && dev.MTU+more > a.Link.MTU {
		h.suspect(
			fmt.Sprintf("packets of %d bytes in the tunnel are %d outside, and %s carries %d", dev.MTU, dev.MTU+more,
				underlay, a.Link.MTU),
			fmt.Sprintf("MTU of %s on %s", dev.Name, node),
			fmt.Sprintf("set network.mtu to at most %d", a.Link.MTU-more),
		)
	}
	if l.src.Kind != PodEnd || l.src.Interface.VM {
		return
	}
	p, ok := w.ask(h, Question{Node: l.src.Node, Pod: l.src.Name, Kind: AskLink, Link: l.src.Interface.Name})
	if !ok || p.Link == nil || p.Link.MTU <= dev.MTU {
		return
	}
	// A route of the pod may have a smaller MTU than its interface.
	if q, ok := w.ask(h,
		Question{Node: l.src.Node, Pod: l.src.Name, Kind: AskRoute, From: l.src.Addr, To: l.dst.Addr}); ok &&
		q.Route.MTU > 0 &&
		q.Route.MTU <= dev.MTU {
		return
	}
	h.suspect(
		fmt.Sprintf(
			"the pod's interface has MTU %d, and the tunnel's %d: large packets pass only if ICMP errors reach the pod",
			p.Link.MTU,
			dev.MTU,
		),
		fmt.Sprintf("MTU of interface %s of pod %s", l.src.Interface.Name, l.src.Name),
		"recreate the pod; new ones get the mesh's MTU",
	)
}

// outerFilter checks the packet filters that a tunnel's packet meets at a node.
func (w *walk) outerFilter(node string, p packet, link string, hooks ...string) {
	h := &Hop{ID: "tunnel filter", Where: node}
	a, ok := w.ask(h, Question{Node: node, Kind: AskChains, To: family(p.dst)})
	if ok {
		p.in, p.out = link, link
		w.checkFilters(h, *a.Chains, p, hooks)
	}
	w.programs(h, node, "", link)
	w.add(h)
}

// underlay checks the link to the next host, and its neighbor entry. far is the other node's address, if it has one.
func (w *walk) underlay(h *Hop, node string, r Route, to, far netip.Addr) {
	a, ok := w.ask(h, Question{Node: node, Kind: AskLink, Link: r.Out})
	if !ok {
		return
	}
	object := fmt.Sprintf("interface %s of node %s", r.Out, node)
	switch {
	case a.Link == nil:
		h.blocked("the interface "+r.Out+" is gone", object, "")
		return
	case !a.Link.Up, !a.Link.Carrier:
		h.blocked("the interface "+r.Out+" is down or has no carrier", object,
			"check the cable, the switch, or the virtual network")
		return
	}
	next := r.Gateway
	if !next.IsValid() {
		next = to
	}
	n, ok := w.ask(h, Question{Node: node, Kind: AskNeighbor, Link: r.Out, To: next})
	if !ok {
		return
	}
	object = fmt.Sprintf("neighbor %s of node %s", next, node)
	switch {
	case n.Neighbor == nil || n.Neighbor.State == "none":
		h.unknown(fmt.Sprintf("%s has not talked to %s lately", node, next), object)
	case !resolved(n.Neighbor):
		h.blocked(fmt.Sprintf("%s gets no answer from %s on %s", node, next, r.Out), object,
			"is the node up, and is the network between them?")
	default:
		h.evidence(fmt.Sprintf("%s is at %s (%s)", next, n.Neighbor.MAC, n.Neighbor.State))
		w.farMAC(h, node, next, far, n.Neighbor.MAC, object)
	}
}

// farMAC compares the MAC address of a neighbor with that of the other node's link, where that is its address.
func (w *walk) farMAC(h *Hop, node string, next, far netip.Addr, have state.MAC, object string) {
	if next != far {
		return
	}
	for name, facts := range w.in.Nodes {
		if name == node || !containsAddr(facts.Addrs, far) {
			continue
		}
		at, ok := w.ask(h, Question{Node: name, Kind: AskAddress, To: far})
		if !ok {
			return
		}
		if at.Value == "" {
			h.blocked(fmt.Sprintf("no interface of %s has its address %s", name, far),
				fmt.Sprintf("address %s of %s", far, name),
				"give the node its address back, or correct the Node's addresses")
			return
		}
		link, ok := w.ask(h, Question{Node: name, Kind: AskLink, Link: at.Value})
		if ok && link.Link == nil {
			h.unknown("the interface "+at.Value+" of "+name+" is gone meanwhile", "interface "+at.Value+" of node "+name)
		}
		if ok && link.Link != nil && !link.Link.MAC.IsZero() && link.Link.MAC != have {
			h.blocked(
				fmt.Sprintf("%s sends to MAC address %s, and %s of %s has %s", node, have, link.Link.Name, name, link.Link.MAC),
				object,
				fmt.Sprintf("ip neigh del %s, on %s; does another host have the address?", next, node),
			)
		}
		return
	}
}

func containsAddr(addrs []netip.Addr, a netip.Addr) bool {
	for _, b := range addrs {
		if a == b {
			return true
		}
	}
	return false
}

func firstOfFamily(addrs []netip.Addr, like netip.Addr) netip.Addr {
	for _, a := range addrs {
		if sameFamily(a, like) {
			return a
		}
	}
	return netip.Addr{}
}

// arrive continues at the other node.
func (w *walk) arrive(l leg, node string, path Path, outer packet) {
	far := l.dst.Node
	facts, known := w.in.Nodes[far]
	if !known {
		h := &Hop{ID: "route", Where: far}
		h.unknown("the agent of "+far+" does not answer", "agent of "+far)
		w.add(h)
		return
	}
	back, planned := facts.path(l.src.Addr)
	in := back.Link
	h := &Hop{ID: "tunnel", Where: far}
	switch {
	case planned && (path.Tunnel || !back.Tunnel):
	case path.Tunnel && facts.tunnelTo(node, l.dst.Addr) != "": // an address of the node itself
		in = facts.tunnelTo(node, l.dst.Addr)
	default: // also what is sent to the node itself, which no tunnel carries
		to := l.src.Addr
		if l.src.Kind == PodEnd || !to.IsValid() {
			to = firstOfFamily(w.in.Nodes[node].Addrs, l.dst.Addr)
		}
		a, ok := w.ask(h, Question{Node: far, Kind: AskRoute, To: to})
		if !ok || a.Route.Errno != "" {
			h.unknown("over which interface packets from "+node+" arrive is not known", "")
			w.add(h)
			return
		}
		in = a.Route.Out
	}
	if path.Tunnel && back.Tunnel {
		if outer.dst.IsValid() {
			a, ok := w.ask(h, Question{Node: far, Kind: AskRoute, To: outer.src})
			if outer.src.IsValid() && ok {
				w.outerFilter(far, outer, a.Route.Out, "prerouting", "input")
			}
		}
		a, ok := w.ask(h, Question{Node: far, Kind: AskLink, Link: in})
		object := fmt.Sprintf("interface %s of node %s", in, far)
		if ok && (a.Link == nil || !a.Link.Up) {
			h.blocked("the tunnel's device is gone or down: nothing unwraps the packets", object,
				"the agent restores it; see weft mesh")
			w.add(h)
			return
		}
	}
	if path.Tunnel || h.State != "" {
		w.add(h)
	}
	w.forward(l, far, in)
}
