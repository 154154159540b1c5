// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/state"
)

// Planner is the backends' input: the configuration, the node, and the kernel's answers.
type Planner struct {
	cfg      Config
	self     model.Node
	pools    pools
	answers  state.Answers
	underlay map[int]Underlay // by family
	metrics  map[netip.Prefix]uint32
	vteps    map[int]state.MAC // self's VTEP MAC by family, computed on demand
}

// Config returns the mesh's configuration.
func (p *Planner) Config() Config { return p.cfg }

// Self returns the node of the plan.
func (p *Planner) Self() model.Node { return p.self }

// Underlay returns the link to peers of a family (4 or 6); false if self has none.
func (p *Planner) Underlay(family int) (Underlay, bool) {
	u, ok := p.underlay[family]
	return u, ok
}

// Answer returns the kernel's answer to a query of the backend (Backend.Observe).
func (p *Planner) Answer(q state.Query) state.Answer { return p.answers[q] }

// Learned returns the runtime data of a backend in user space, in that backend's own format.
func (p *Planner) Learned(backend string) string { return p.cfg.Learned[backend] }

// Metric returns the metric of the route to a prefix, which no other prefix has.
func (p *Planner) Metric(cidr netip.Prefix) uint32 { return p.metrics[cidr.Masked()] }

// Route returns a route to a peer's prefix with the mesh's metric and protocol; the caller adds gateway and link.
func (p *Planner) Route(cidr netip.Prefix) state.Route {
	return state.Route{Dst: cidr, Metric: p.Metric(cidr), Protocol: Protocol}
}

// PodCIDR returns self's own prefix of a family.
func (p *Planner) PodCIDR(family int) (netip.Prefix, bool) {
	i := slices.IndexFunc(p.self.PodCIDRs, func(c netip.Prefix) bool { return familyOf(c.Addr()) == family })
	if i < 0 {
		return netip.Prefix{}, false
	}
	return p.self.PodCIDRs[i].Masked(), true
}

// ownAddr returns the address of self's tunnel devices of a family.
func (p *Planner) ownAddr(family int) (netip.Addr, bool) {
	if a, ok := addrIn(p.cfg.TunnelAddrs, family); ok {
		return a, true
	}
	cidr, ok := p.PodCIDR(family)
	return cidr.Addr(), ok
}

// nounOf returns whether a prefix of a node is a podCIDR or a block.
func nounOf(n model.Node, cidr netip.Prefix) string {
	if slices.Contains(n.PodCIDRs, cidr) {
		return ofNode
	}
	return ofPool
}

// Data returns what a node publishes for a backend and a family; empty if it publishes nothing, or another backend.
func Data(n model.Node, backend string, family int) string {
	if n.Published == nil || n.Published.Backend != backend {
		return ""
	}
	if family == 6 {
		return n.Published.DataV6
	}
	return n.Published.Data
}

// Endpoints returns a peer's underlay address for one of its prefixes, and the underlay to it.
func (p *Planner) Endpoints(peer model.Node, cidr netip.Prefix) (far netip.Addr, u Underlay, problem *Problem) {
	family := familyOf(cidr.Addr())
	far, ok := addrOf(peer, family)
	if !ok {
		return far, u, &Problem{
			[]string{peer.Name},
			fmt.Sprintf("node %s has the %s %s but no IPv%d InternalIP", peer.Name, nounOf(peer, cidr), cidr, family),
			"add an address of that family to the Node's status.addresses, or remove the " + nounOf(peer, cidr),
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

// publish returns what self should publish to its peers.
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

// Forwarding enables IP forwarding between the node's pods and the underlay: every backend's Node begins with it.
func (p *Planner) Forwarding() BackendState { return enableForwarding(p) }
