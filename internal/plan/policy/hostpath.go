// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/plan/policy/hostendpoint"
	"github.com/weft-net/weft/internal/state"
)

// hostPath is how a connection crosses one node, as far as its addresses tell.
type hostPath struct {
	*hosts
	explainer *explainer
	// here: the node is this one, whose interfaces and pods are known.
	here bool
	flow Flow
}

// Interfaces that are not known by a name. No interface has one of these.
const (
	// anyInterface stands for an interface without a host endpoint of its own, podInterface for that of a pod of another
	// node.
	anyInterface, podInterface = "*", "pod"
	loopback                   = "lo"
)

// whyHost returns the sides of host endpoints in a connection, at the nodes of both ends, and where it cannot tell.
func (x *explainer) whyHost(f Flow) (sides []Side, unknown []string) {
	if !x.hosts.any() {
		return nil, nil
	}
	var nodes []string
	for _, a := range []netip.Addr{f.Src, f.Dst} {
		if n, is := x.nodeOf(a); is && !slices.Contains(nodes, n) {
			nodes = append(nodes, n)
		}
	}
	for _, n := range nodes {
		s, why := x.hostPath(n, f).decide()
		if sides = append(sides, s...); why != "" {
			unknown = append(unknown, why)
		}
	}
	return sides, unknown
}

// nodeOf returns the node that has an address, or whose pod has it.
func (x *explainer) nodeOf(a netip.Addr) (node string, is bool) {
	if slices.Contains(x.tables.self, a) || len(x.endpoints.byAddr[a]) > 0 {
		return x.hosts.node, true
	}
	if ref, is := x.cluster.pods.podAt(networkAddr{"", a}); is {
		p := x.cluster.pods.pod(ref.Namespace, ref.Name)
		if p == nil || p.node == (text{}) {
			return "", false
		}
		return p.node.Value(), true
	}
	for name, n := range x.cluster.nodes {
		if slices.Contains(n.addrs, a) {
			return name, true
		}
	}
	for _, h := range x.cluster.hosts {
		if slices.Contains(h.Addrs, a) {
			return h.Node, true
		}
	}
	return "", false
}

// hostPath returns the way through a node: this one as it is, another as its objects say.
func (x *explainer) hostPath(node string, f Flow) hostPath {
	p := hostPath{hosts: x.hosts, explainer: x, here: node == x.hosts.node, flow: f}
	if !p.here {
		other := *x.hosts
		var labels map[string]string
		if n := x.cluster.nodes[node]; n != nil {
			labels = n.facts(node).Labels
		}
		other.node, other.interfaces, other.links = node, nil, []string{podInterface}
		for _, h := range x.cluster.hosts {
			if h.Node == node && h.Interface == "" && len(h.Addrs) > 0 {
				other.interfaces = append(other.interfaces, hostendpoint.Interface{
					Name: "with " + h.Addrs[0].String(), Addrs: h.Addrs,
				})
			}
		}
		other.effective = hostendpoint.Effective(slices.Collect(maps.Values(other.felix)), node, labels)
		other.placed = hostendpoint.Place(x.cluster.hosts, node, other.interfaces)
		p.hosts = &other
	}
	return p
}

// decide returns the sides of the node's host endpoints, or why it cannot tell what they decide.
func (p hostPath) decide() (sides []Side, unknown string) {
	var allowed, denied [][]Side
	for _, way := range p.ways() {
		found := p.at(way)
		if slices.ContainsFunc(found, func(s Side) bool { return !s.Allowed }) {
			denied = append(denied, found)
		} else {
			allowed = append(allowed, found)
		}
	}
	switch {
	case len(denied) > 0 && len(allowed) > 0:
		s := denied[0][len(denied[0])-1]
		return nil, fmt.Sprintf("%s of host endpoint %s of node %s may deny it: by which interface packets %s is not known",
			s.Direction, s.HostEndpoint, p.node, map[string]string{"ingress": "come in", "egress": "leave"}[s.Direction])
	case len(denied) > 0:
		return denied[0], ""
	case len(allowed) == 0: // not through the node
		return nil, ""
	}
	if t := p.template(); t != "" {
		return nil, fmt.Sprintf("a host endpoint of node %s by the template %q of Calico's controllers may deny it: "+
			"its interfaces are known on that node only", p.node, t)
	}
	return allowed[0], ""
}

// template returns the name of a template by which another node may have host endpoints that a policy selects: only
// that node knows the names of its interfaces.
func (p hostPath) template() string {
	n := p.cluster.nodes[p.node]
	if p.here || !p.controller.Enabled || n == nil {
		return ""
	}
	one := model.HostEndpointController{Enabled: true}
	for _, t := range p.controller.Templates {
		if t.Interfaces == "" {
			continue
		}
		one.Templates = []model.HostEndpointTemplate{t}
		one.Templates[0].Interfaces = ".*"
		for _, h := range hostendpoint.Automatic(one, n.facts(p.node), []string{anyInterface}) {
			if slices.ContainsFunc(p.cluster.wide, func(o *policy) bool {
				return o.Kind == model.KindGlobalNetworkPolicy && o.subject.endpoints != nil && o.subject.endpoints.Matches(hostView(h))
			}) {
				return t.Name
			}
		}
	}
	return ""
}

// at returns the sides of the packets of one way.
func (p hostPath) at(way []HostPacket) []Side {
	d := hostDecider{hosts: p.hosts, walker: p.explainer.walker()}
	if !p.here {
		d.scratch = newTable(EnforcementPoint{}, p.explainer.groups)
	}
	for _, packet := range way {
		if d.decide(packet); slices.ContainsFunc(d.sides, func(s Side) bool { return !s.Allowed }) {
			break
		}
	}
	return d.sides
}

// ways returns the packets of the connection at the node, once for each interface that it may use.
func (p hostPath) ways() (out [][]HostPacket) {
	add := func(all ...HostPacket) {
		for i := range all {
			all[i].Flow = p.flow
		}
		out = append(out, all)
	}
	ownSrc, ownDst := p.own(p.flow.Src), p.own(p.flow.Dst)
	in, fromPod := p.podLink(p.flow.Src)
	to, toPod := p.podLink(p.flow.Dst)
	switch {
	case fromPod && in == "" || toPod && to == "": // the node does not forward what its interface's parent carries
	case ownSrc && ownDst:
		add(HostPacket{Out: loopback}, HostPacket{In: loopback})
	case ownSrc && toPod:
		add(HostPacket{Out: to})
	case ownSrc:
		for _, link := range p.uplinks(p.flow.Src, p.flow.Dst) {
			add(HostPacket{Out: link})
		}
	case fromPod && ownDst:
		add(HostPacket{In: in})
	case ownDst:
		for _, link := range p.uplinks(p.flow.Dst, p.flow.Src) {
			add(HostPacket{In: link})
		}
	case fromPod && toPod:
		add(HostPacket{In: in, Out: to})
	case fromPod:
		for _, link := range p.uplinks(netip.Addr{}, p.flow.Dst) {
			add(HostPacket{In: in, Out: link})
		}
	case toPod:
		for _, link := range p.uplinks(netip.Addr{}, p.flow.Src) {
			add(HostPacket{In: link, Out: to})
		}
	}
	return out
}

// own reports whether an address is the node's.
func (p hostPath) own(a netip.Addr) bool {
	if n := p.cluster.nodes[p.node]; n != nil && slices.Contains(n.addrs, a) || p.here && slices.Contains(p.tables.self, a) {
		return true
	}
	_, pod := p.cluster.pods.podAt(networkAddr{"", a})
	return !pod && slices.ContainsFunc(p.cluster.hosts, func(h model.HostEndpoint) bool {
		return h.Node == p.node && slices.Contains(h.Addrs, a)
	})
}

// podLink returns the node's interface by which packets of a pod of it come; empty: there is none. is is false if no pod of
// the node has the address.
func (p hostPath) podLink(a netip.Addr) (link string, is bool) {
	if !p.here {
		ref, is := p.cluster.pods.podAt(networkAddr{"", a})
		if !is {
			return "", false
		}
		pod := p.cluster.pods.pod(ref.Namespace, ref.Name)
		return podInterface, pod != nil && pod.node != (text{}) && pod.node.Value() == p.node
	}
	for _, e := range p.endpoints.byAddr[a] {
		if e.Network != "" {
			continue
		}
		if e.HostEnd == model.HostEndPort {
			for _, i := range p.interfaces {
				if i.Name == e.HostLink && i.Master != "" {
					return i.Master, true
				}
			}
		}
		return e.HostLink, true
	}
	return "", false
}

// uplinks returns the interfaces by which packets from or to another host may come or leave: those with the node's own
// address in them, if one is known to have it, and otherwise each with a host endpoint, and one without. If there is one
// host endpoint it is that of the interface to all but the pods of other nodes, for which there may be a tunnel.
func (p hostPath) uplinks(own, other netip.Addr) (out []string) {
	for _, at := range p.placed {
		if slices.Contains(at.Addrs, own) && at.Interface != "" {
			out = append(out, at.Interface)
		}
	}
	for _, i := range p.interfaces {
		shim := strings.HasPrefix(i.Name, state.HostShimPrefix)
		if slices.Contains(i.Addrs, own) && !slices.Contains(out, i.Name) && !shim {
			return []string{i.Name}
		}
	}
	if len(out) > 0 {
		return out
	}
	for _, at := range p.placed {
		if at.Interface != "" && at.Interface != loopback {
			out = append(out, at.Interface)
		}
	}
	if _, pod := p.cluster.pods.podAt(networkAddr{"", other}); !pod && len(p.placed) == 1 && len(out) == 1 {
		return out
	}
	return append(out, anyInterface)
}
