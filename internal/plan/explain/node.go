// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/weft-net/weft/internal/plan/policy"
)

// forward checks a node that routes a packet: one that arrived on in, or its own if in is empty.
func (w *walk) forward(l leg, node, in string) {
	if l.dst.Kind == OutsideEnd && l.dst.Node == "" {
		// An address of a peer's prefix that no pod has: packets go to that peer, whose kernel says what becomes of them.
		l.dst.Node, _, _ = w.in.Nodes[node].peerPath(l.dst.Addr)
	}
	w.limits(l, node)
	h := &Hop{ID: "route", Where: node}
	route, ok := w.route(h, l, node, in)
	if !ok {
		refused := h.State == Blocked
		w.add(h)
		if refused {
			w.forwardAsPlanned(l, node, in)
		}
		return
	}
	if route.Type == "local" {
		h.evidence(l.dst.Addr.String() + " is an address of the node")
		w.add(h)
		if l.dst.translated() {
			w.toBackend(l, node, in)
			return
		}
		w.filter(l, node, "", in, "", "prerouting", "input")
		if in == "" {
			w.host(l, node, "", loopback)
			w.host(l, node, loopback, "")
		} else {
			w.host(l, node, in, "")
		}
		w.listener(l, node, "", false)
		return
	}
	local := l.dst.Kind == PodEnd && l.dst.Node == node
	var path Path
	if local {
		w.localRoute(h, l, route)
	} else {
		path = w.remoteRoute(h, l, node, route)
	}
	lost := h.State == Blocked
	w.add(h)
	if in == "" {
		w.filter(l, node, "", "", route.Out, "output", "postrouting")
	} else {
		w.filter(l, node, "", in, route.Out, "prerouting", "forward", "postrouting")
	}
	w.host(l, node, in, route.Out)
	switch {
	case local:
		w.deliver(l, route.Out)
	case l.dst.Kind == OutsideEnd && (l.dst.Node == "" || l.dst.Node == node):
		w.outside(l, node, route)
	case lost:
		w.toNodeAsPlanned(l, node, path)
	default:
		w.toNode(l, node, route, path)
	}
}

// toBackend continues behind a port of the node that leads to a pod.
func (w *walk) toBackend(l leg, node, in string) {
	h := &Hop{ID: "port", Where: node}
	port := fmt.Sprintf("port %d/%s of %s", l.port, strings.ToLower(string(l.protocol)), node)
	if len(l.dst.Backends) == 0 {
		h.blocked(port+" leads to no pod: "+l.dst.Policy, port, "see kubectl get endpointslices, and whether its pods are ready")
		w.add(h)
		return
	}
	backend := l.dst.Backends[0]
	h.evidence(fmt.Sprintf("%s leads to port %d of %s", port, l.dst.BackendPort, endsText(l.dst.Backends)))
	w.add(h)
	l.arrived = &arrival{in, l.src.Addr, netip.AddrPortFrom(l.dst.Addr, l.port)}
	l.port = l.dst.BackendPort
	if l.dst.Masquerade {
		l.src, in = l.dst.plain(), ""
	}
	l.dst = backend
	w.forward(l, node, in)
}

// forwardAsPlanned continues behind a route that drops the packet: where it would go by the mesh's own route something
// else may be in the way, too.
func (w *walk) forwardAsPlanned(l leg, node, in string) {
	if l.dst.Kind != PodEnd || in == "" {
		return
	}
	if l.dst.Node == node {
		if out, _, ok := w.hostLink(&Hop{}, l.dst); ok {
			w.filter(l, node, "", in, out, "prerouting", "forward", "postrouting")
			w.host(l, node, in, out)
			w.deliver(l, out)
		}
		return
	}
	if path, planned := w.in.Nodes[node].path(l.dst.Addr); planned {
		w.filter(l, node, "", in, path.Link, "prerouting", "forward", "postrouting")
		w.host(l, node, in, path.Link)
		w.toNodeAsPlanned(l, node, path)
	}
}

// toNodeAsPlanned continues with the mesh's own route, whatever the kernel has.
func (w *walk) toNodeAsPlanned(l leg, node string, path Path) {
	if path.Link != "" {
		w.toNode(l, node, Route{Type: "unicast", Out: path.Link, Gateway: path.Gateway}, path)
	}
}

// route asks the kernel how it routes a packet, and checks an error. ok is false if the packet goes nowhere.
func (w *walk) route(h *Hop, l leg, node, in string) (Route, bool) {
	if in != "" {
		w.forwarding(h, l, node)
	}
	a, ok := w.ask(h, Question{Node: node, Kind: AskRoute, From: l.src.Addr, To: l.dst.Addr, In: in})
	if !ok {
		return Route{}, false
	}
	r := *a.Route
	object := fmt.Sprintf("route to %s on %s", l.dst.Addr, node)
	hint := fmt.Sprintf("ip route get %s, on %s; weft mesh", l.dst.Addr, node)
	switch {
	case h.State == Blocked: // forwarding is off, which is what the error means
		return r, false
	case r.Errno == "ENETUNREACH":
		h.blocked(fmt.Sprintf("%s has no route to %s", node, l.dst.Addr), object, hint)
	case r.Errno == "EHOSTUNREACH" || r.Type == "unreachable":
		h.blocked(fmt.Sprintf("a route of %s makes %s unreachable", node, l.dst.Addr), object, hint)
	case r.Errno == "EACCES" || r.Type == "prohibit":
		h.blocked(fmt.Sprintf("a route of %s prohibits %s", node, l.dst.Addr), object, hint)
	case r.Type == "blackhole":
		h.blocked(fmt.Sprintf("a blackhole route of %s drops packets to %s", node, l.dst.Addr), object, hint)
	case r.Errno != "":
		w.refusedRoute(h, l, node, in, r.Errno)
	default:
		text := fmt.Sprintf("%s over %s", l.dst.Addr, r.Out)
		if r.Gateway.IsValid() {
			text += " via " + r.Gateway.String()
		}
		if r.Learned {
			text += fmt.Sprintf(", path MTU %d learned", r.MTU)
		}
		h.evidence(text)
		return r, true
	}
	return r, false
}

// refusedRoute checks an error that the kernel returns for a blackhole, for reverse path filtering and for sources that
// are the node's own (all of them EINVAL since Linux 6.x; EXDEV for the second before).
func (w *walk) refusedRoute(h *Hop, l leg, node, in, errno string) {
	plain, ok := w.ask(h, Question{Node: node, Kind: AskRoute, To: l.dst.Addr})
	if !ok {
		return
	}
	if plain.Route.Errno == errno || plain.Route.Type == "blackhole" {
		h.blocked(fmt.Sprintf("a blackhole route of %s drops packets to %s", node, l.dst.Addr),
			fmt.Sprintf("route to %s on %s", l.dst.Addr, node), fmt.Sprintf("ip route get %s, on %s", l.dst.Addr, node))
		return
	}
	back, ok := w.ask(h, Question{Node: node, Kind: AskRoute, To: l.src.Addr})
	if !ok {
		return
	}
	strict, read := w.reversePathFilter(h, node, in)
	switch {
	case !read:
	case strict != "" && back.Route.Out != in:
		h.blocked(fmt.Sprintf("reverse path filtering of %s drops packets from %s on %s: the way back is over %s", node,
			l.src.Addr, in, word(back.Route.Out, "no interface")), strict+" of "+node, "set it to 0 or 2 (loose)")
	case back.Route.Type == "local":
		h.blocked(fmt.Sprintf("%s drops packets from %s, which is an address of its own", node, l.src.Addr),
			fmt.Sprintf("address %s of %s", l.src.Addr, node), "two hosts have the address")
	default:
		h.blocked(fmt.Sprintf("the kernel of %s refuses packets from %s on %s (%s)", node, l.src.Addr, in, errno),
			fmt.Sprintf("route to %s on %s", l.src.Addr, node), "")
	}
}

func word(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}

// reversePathFilter returns the sysctl that makes the filter strict, "" if none does.
func (w *walk) reversePathFilter(h *Hop, node, in string) (strict string, read bool) {
	read = true
	for _, link := range []string{"all", in} {
		name := "net/ipv4/conf/" + link + "/rp_filter"
		a, ok := w.ask(h, Question{Node: node, Kind: AskSysctl, Name: name})
		read = read && ok
		if ok && a.Value == "1" && strict == "" {
			strict = name
		}
		if ok && a.Value == "2" { // the greater value of both counts
			return "", read
		}
	}
	return strict, read
}

// forwarding checks whether the node forwards at all.
func (w *walk) forwarding(h *Hop, l leg, node string) {
	name := "net/ipv4/ip_forward"
	if l.dst.Addr.Is6() {
		name = "net/ipv6/conf/all/forwarding"
	}
	local := l.dst.Kind == NodeEnd && l.dst.Node == node
	if local {
		return
	}
	if a, ok := w.ask(h, Question{Node: node, Kind: AskSysctl, Name: name}); ok && a.Value == "0" {
		h.blocked(
			node+" does not forward packets",
			name+" of "+node,
			fmt.Sprintf("sysctl -w %s=1 on %s; look in /etc/sysctl.d for who sets it to 0",
				strings.ReplaceAll(name, "/", "."), node),
		)
	}
}

// localRoute checks the route to a pod of the node: it must lead to the pod's interface.
func (w *walk) localRoute(h *Hop, l leg, r Route) {
	want, _, ok := w.hostLink(&Hop{}, l.dst)
	if ok && r.Out != want {
		h.blocked(fmt.Sprintf("the route to %s leads to %s, not to the pod's interface %s", l.dst.Addr, r.Out, want),
			fmt.Sprintf("route to %s on %s", l.dst.Addr, l.dst.Node), "the agent restores it; see weft doctor and ip rule")
	}
}

// remoteRoute checks the route to another node, or to one of its pods, by the mesh's plan.
func (w *walk) remoteRoute(h *Hop, l leg, node string, r Route) Path {
	facts, known := w.in.Nodes[node]
	if l.dst.Kind != PodEnd && (l.dst.Kind != OutsideEnd || l.dst.Node == "" || l.dst.Node == node) {
		return Path{Link: r.Out, Far: l.dst.Addr}
	}
	if !known {
		h.unknown("the agent of "+node+" does not answer", "agent of "+node)
		return Path{}
	}
	path, planned := facts.path(l.dst.Addr)
	object := fmt.Sprintf("route to %s on %s", l.dst.Addr, node)
	hint := "the agent restores it; see weft mesh, weft doctor and ip rule on " + node
	switch {
	case !planned:
		h.suspect(fmt.Sprintf("the mesh of %s has no path to %s", node, l.dst.Addr), object, "see weft mesh on "+node)
	case path.Learned:
		h.evidence("the route was learned by BGP")
	case r.Out != path.Link:
		h.blocked(fmt.Sprintf("packets to %s leave %s over %s, not over %s", l.dst.Addr, node, r.Out, path.Link),
			object, hint)
	case !path.Tunnel && path.Far.IsValid() && r.Gateway.IsValid() &&
		r.Gateway != path.Far && sameFamily(r.Gateway, path.Far):
		h.blocked(fmt.Sprintf("packets to %s are sent to %s, and its node has %s", l.dst.Addr, r.Gateway, path.Far),
			object, hint)
	}
	return path
}

// filter checks the packet filters of other programs at the hooks, in a node's namespace or a pod's.
func (w *walk) filter(l leg, node, pod, in, out string, hooks ...string) {
	where := node
	if pod != "" {
		where = pod + " on " + node
	}
	h := &Hop{ID: "filter", Where: where}
	a, ok := w.ask(h, Question{Node: node, Pod: pod, Kind: AskChains, To: family(l.dst.Addr)})
	if !ok {
		w.add(h)
		return
	}
	w.checkFilters(h, *a.Chains, l.packet(in, out), hooks)
	w.programs(h, node, pod, in, out)
	if len(h.Evidence) == 0 && h.State == "" {
		h.evidence("no rule of another program matches")
	}
	w.add(h)
}

// loopback is the interface of what a node sends to itself.
const loopback = "lo"

// host checks what policies decide at the interfaces of a node. A packet that a port of the node has translated is the one
// that arrived there.
func (w *walk) host(l leg, node, in, out string) {
	if !w.in.Nodes[node].Hosts {
		return
	}
	h := &Hop{ID: "host", Where: node}
	q := Question{
		Node: node, Kind: AskHost, From: l.src.Addr, To: l.dst.Addr, Protocol: l.protocol, Port: l.port, In: in, Link: out, Reply: l.reply,
	}
	if l.arrived != nil {
		q.In, q.From, q.Before = l.arrived.in, l.arrived.src, l.arrived.dst
	}
	if a, ok := w.ask(h, q); ok {
		for _, s := range a.Hosts.Sides {
			w.hostSide(h, s)
		}
		if len(a.Hosts.Sides) == 0 {
			h.evidence("no policy decides at the interfaces")
		}
	}
	w.add(h)
}

// hostSide adds what the policies of one host endpoint decide.
func (w *walk) hostSide(h *Hop, s policy.Side) {
	where := s.Direction + " of host endpoint " + s.HostEndpoint
	if s.HostEndpoint == "" {
		where = "what pods send to their own node"
	}
	by := keysText(s.Decided)
	if s.Rule >= 0 {
		by += fmt.Sprintf(" rule %d", s.Rule)
	}
	switch {
	case !s.Allowed:
		h.blocked("network policy denies "+where+":"+by, "policy"+by, "weft policy why "+w.in.From.Name+" "+w.in.To.Name)
	case s.BySourcePort:
		h.unknown("rules of "+where+" are about the source's port, which is not known", "policy"+by)
	case by == "":
		h.evidence(where + ": allowed")
	default:
		h.evidence(where + ": allowed by" + by)
	}
	if s.Text != "" {
		h.evidence("rule: " + s.Text)
	}
}

// programs checks whether something besides netfilter decides about packets of links: what it does cannot be read.
func (w *walk) programs(h *Hop, node, pod string, links ...string) {
	for _, name := range links {
		if name == "" {
			continue
		}
		object := fmt.Sprintf("interface %s of %s", name, h.Where)
		switch a, ok := w.ask(h, Question{Node: node, Pod: pod, Kind: AskLink, Link: name}); {
		case !ok:
		case a.Link == nil:
			h.unknown("the interface "+name+" is gone", object)
		case len(a.Link.Programs) > 0:
			h.unknown(fmt.Sprintf("%s of %s may drop the packet", strings.Join(a.Link.Programs, ", "), name), object)
		}
	}
}

// checkFilters checks a packet at several hooks, before prerouting at ingress and after postrouting at egress too.
func (w *walk) checkFilters(h *Hop, rules Ruleset, p packet, hooks []string) {
	var all []string
	for _, hook := range hooks {
		switch hook {
		case "prerouting":
			all = append(all, "ingress", hook)
		case "postrouting":
			all = append(all, hook, "egress")
		default:
			all = append(all, hook)
		}
	}
	for _, hook := range all {
		at := p
		switch hook {
		case "ingress", "prerouting", "input":
			at.out = ""
		case "egress", "postrouting", "output":
			at.in = ""
		}
		switch hook { // before and after connection tracking
		case "ingress", "egress":
			at.state = ""
		}
		o := run(rules, hook, at)
		if o.dropped != no {
			w.split(h)
		}
		switch o.dropped {
		case yes:
			verb := "drops"
			if o.rejected {
				verb = "rejects"
			}
			h.blocked(fmt.Sprintf("a packet filter of another program %s the packet in %s", verb, hook), o.by,
				"nft -a list ruleset; allow the traffic there")
		case maybe:
			h.unknown("a packet filter of another program may drop the packet in "+hook, o.by)
		}
		if o.rewrite != "" {
			w.split(h)
			h.suspect("a packet filter of another program changes the packet's header in "+hook, o.rewrite,
				"wrong checksums are dropped")
		}
		if o.notrack != "" {
			w.split(h)
			h.suspect("a packet filter of another program exempts the packet from connection tracking in "+hook, o.notrack,
				"rules that accept established connections do not match the other direction")
		}
		if o.masquerade != "" {
			h.evidence("masquerade: " + o.by)
		}
	}
}

// family returns the unspecified address of an address's family, so that one question serves all addresses of it.
func family(a netip.Addr) netip.Addr {
	if a.Is4() {
		return netip.IPv4Unspecified()
	}
	return netip.IPv6Unspecified()
}

// limits checks the tables of a node that can be full.
func (w *walk) limits(l leg, node string) {
	h := &Hop{ID: "limits", Where: node}
	if a, ok := w.ask(h, Question{Node: node, Kind: AskConntrack}); ok && a.Conntrack.Max > 0 {
		c := a.Conntrack
		object := "net/netfilter/nf_conntrack_max of " + node
		hint := "raise net.netfilter.nf_conntrack_max on " + node
		h.evidence(fmt.Sprintf("connection table: %d of %d", c.Count, c.Max))
		switch {
		case c.Count >= c.Max:
			h.blocked("the connection table is full", object, hint)
		case c.Count*10 >= c.Max*9:
			h.suspect(fmt.Sprintf("the connection table is nearly full: %d of %d", c.Count, c.Max), object, hint)
		}
	}
	if a, ok := w.ask(h, Question{Node: node, Kind: AskNeighborTable, To: family(l.dst.Addr)}); ok &&
		a.NeighborTable.Max > 0 {
		n := a.NeighborTable
		setting := "net/ipv4/neigh/default/gc_thresh3"
		if l.dst.Addr.Is6() {
			setting = "net/ipv6/neigh/default/gc_thresh3"
		}
		counted := n.Entries - n.Permanent
		h.evidence(fmt.Sprintf("neighbor table: %d of %d, refused %d", counted, n.Max, n.Full))
		// Permanent entries of other namespaces are in the number, too: the limit was met only if it refused some.
		if counted >= n.Max && n.Full > 0 {
			h.suspect(fmt.Sprintf("the neighbor table is full: it has refused %d entries since the boot", n.Full),
				setting+" of "+node, "raise it on the host: it counts for all namespaces together")
		}
	}
	w.add(h)
}

// outside is the end of the path that the cluster knows.
func (w *walk) outside(l leg, node string, r Route) {
	h := &Hop{ID: "wire", Where: "from " + node}
	if l.dst.Node == node {
		h.unknown(fmt.Sprintf("no pod that the agents know has %s, an address of %s: it leaves over %s", l.dst.Addr, node, r.Out),
			"address "+l.dst.Addr.String())
	}
	w.underlay(h, node, r, l.dst.Addr, netip.Addr{})
	h.unknown("what is behind "+r.Out+" of "+node+" is outside of the cluster", "")
	w.add(h)
}
