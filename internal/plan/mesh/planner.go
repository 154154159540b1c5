// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/state"
)

// Planner is what back ends plan by: one configuration, one node, one look at the kernel.
type Planner struct {
	cfg      Config
	self     model.Node
	pools    pools
	answers  state.Answers
	underlay map[int]Underlay // by family
	metrics  map[netip.Prefix]uint32
	vteps    map[int]state.MAC // self's own of a family, once it was looked for
}

// Config is how the mesh is built.
func (p *Planner) Config() Config { return p.cfg }

// Self is the node that is planned for.
func (p *Planner) Self() model.Node { return p.self }

// Underlay is the link that packets to peers of a family (4 or 6) leave through; false where self has none.
func (p *Planner) Underlay(family int) (Underlay, bool) {
	u, ok := p.underlay[family]
	return u, ok
}

// Answer is what the kernel said to a query of the back end's own (Backend.Observe).
func (p *Planner) Answer(q state.Query) state.Answer { return p.answers[q] }

// Learned is what the Runner found out for a back end in user space: in that back end's own words.
func (p *Planner) Learned(backend string) string { return p.cfg.Learned[backend] }

// Metric is the metric of the route to a prefix: one of its own.
func (p *Planner) Metric(cidr netip.Prefix) uint32 { return p.metrics[cidr.Masked()] }

// Route is a route to a peer's prefix as the mesh makes them; who plans it adds the way.
func (p *Planner) Route(cidr netip.Prefix) state.Route {
	return state.Route{Dst: cidr, Metric: p.Metric(cidr), Protocol: Protocol}
}

// PodCIDR is self's own prefix of a family.
func (p *Planner) PodCIDR(family int) (netip.Prefix, bool) {
	i := slices.IndexFunc(p.self.PodCIDRs, func(c netip.Prefix) bool { return familyOf(c.Addr()) == family })
	if i < 0 {
		return netip.Prefix{}, false
	}
	return p.self.PodCIDRs[i].Masked(), true
}

// ownAddr is what self has at the ends of its tunnels of a family.
func (p *Planner) ownAddr(family int) (netip.Addr, bool) {
	if a, ok := addrIn(p.cfg.TunnelAddrs, family); ok {
		return a, true
	}
	cidr, ok := p.PodCIDR(family)
	return cidr.Addr(), ok
}

// nounOf says what a prefix of a node is.
func nounOf(n model.Node, cidr netip.Prefix) string {
	if slices.Contains(n.PodCIDRs, cidr) {
		return ofNode
	}
	return ofPool
}

// Data is what a node publishes for a back end and a family, empty when it publishes nothing or of another back end.
func Data(n model.Node, backend string, family int) string {
	if n.Published == nil || n.Published.Backend != backend {
		return ""
	}
	if family == 6 {
		return n.Published.DataV6
	}
	return n.Published.Data
}

// Ends are where a peer is found for one of its prefixes, and the underlay to it.
func (p *Planner) Ends(peer model.Node, cidr netip.Prefix) (far netip.Addr, u Underlay, problem *Problem) {
	family := familyOf(cidr.Addr())
	far, ok := addrOf(peer, family)
	if !ok {
		return far, u, &Problem{
			[]string{peer.Name},
			fmt.Sprintf("node %s has the %s %s but no IPv%d InternalIP", peer.Name, nounOf(peer, cidr), cidr, family),
			"give the Node an address of that family in status.addresses, or take the " + nounOf(peer, cidr) + " away",
		}
	}
	if u, ok = p.underlay[family]; !ok {
		return far, u, &Problem{
			[]string{p.self.Name, peer.Name},
			fmt.Sprintf("node %s has no IPv%d underlay, so no peer's IPv%d pods are reached", p.self.Name, family, family),
			fmt.Sprintf("give node %s an InternalIP of that family that one of its links holds", p.self.Name),
		}
	}
	return far, u, nil
}

// publish is what self should tell the others.
func (p *Planner) publish(b Backend) model.Published {
	out := model.Published{Backend: b.Name}
	for _, family := range families() {
		u, ok := p.underlay[family]
		if !ok {
			continue
		}
		addr := u.Address
		if i := slices.IndexFunc(p.self.Public, func(a netip.Addr) bool { return familyOf(a) == family }); i >= 0 {
			addr = p.self.Public[i]
		}
		out.Addrs = append(out.Addrs, addr)
		if b.Publish == nil {
			continue
		}
		if family == 6 {
			out.DataV6 = b.Publish(p, family)
		} else {
			out.Data = b.Publish(p, family)
		}
	}
	return out
}

// Forwarding lets the node pass packets on between its pods and the underlay: what every back end's Node begins with.
func (p *Planner) Forwarding() Part { return forwarding(p) }
