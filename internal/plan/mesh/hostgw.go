// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"fmt"
	"net/netip"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/state"
)

// forwarding lets the node pass packets on between its pods and the underlay.
func forwarding(p *Planner) Part {
	var s state.Space
	if _, ok := p.underlay[4]; ok {
		s.Sysctls = append(s.Sysctls, state.Sysctl{Name: "net/ipv4/ip_forward", Value: "1", Shared: true})
	}
	if _, ok := p.underlay[6]; ok {
		s.Sysctls = append(s.Sysctls, state.Sysctl{
			Name: "net/ipv6/conf/all/forwarding", Value: "1", Shared: true, IfPresent: true,
		})
	}
	return Part{Host: s}
}

// gateway routes a peer's prefix to the peer's own address.
func gateway(p *Planner, peer model.Node, cidr netip.Prefix) (Part, *Problem) {
	via, u, problem := p.Ends(peer, cidr)
	if problem != nil {
		return Part{}, problem
	}
	if !u.Reaches(via) {
		return Part{}, &Problem{
			[]string{peer.Name},
			fmt.Sprintf("node %s: its address %s is no neighbor on %s (%v)", peer.Name, via, u.Link, u.OnLink),
			"host-gw needs all nodes on one network; put the node there, or encapsulate (vxlan)",
		}
	}
	r := p.Route(cidr)
	r.Gw, r.Link = via, u.Link
	return Part{Host: state.Space{Routes: []state.Route{r}}}, nil
}

// blackholes refuse what is for self's own pods and finds none: a default route would send it back where it came from,
// and of a single address the node whose block has it. Who sends to a block is told; a prefix is silent, as its key
// says.
func (p *Planner) blackholes(unusable map[claim]bool) []state.Route {
	const blackhole, unreachable = 6, 7 // RTN_BLACKHOLE, RTN_UNREACHABLE
	var out []state.Route
	refuse := func(cidr netip.Prefix, kind uint8) {
		r := p.Route(cidr)
		r.Type = kind
		if familyOf(cidr.Addr()) == 6 {
			r.Link = "lo" // where the kernel puts it
		}
		out = append(out, r)
	}
	if p.cfg.Blackhole {
		for _, cidr := range first(p.self.PodCIDRs) {
			refuse(cidr, blackhole)
		}
	}
	for _, s := range p.pools.of[p.self.Name] {
		if !s.brought && !unusable[claim{p.self.Name, s.cidr, ofPool}] {
			// one that holds a node's own address would cut that off
			refuse(s.cidr, unreachable)
		}
	}
	return out
}
