// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"fmt"
	"net/netip"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/state"
)

// enableForwarding enables IP forwarding between the node's pods and the underlay.
func enableForwarding(p *Planner) BackendState {
	var s state.Space
	if _, ok := p.underlay[4]; ok {
		s.Sysctls = append(s.Sysctls, state.Sysctl{Name: "net/ipv4/ip_forward", Value: "1", Shared: true})
	}
	if _, ok := p.underlay[6]; ok {
		s.Sysctls = append(s.Sysctls, state.Sysctl{
			Name: "net/ipv6/conf/all/forwarding", Value: "1", Shared: true, IfPresent: true,
		})
	}
	return BackendState{Host: s}
}

// gateway routes a peer's prefix to the peer's own address.
func gateway(p *Planner, peer model.Node, cidr netip.Prefix) (BackendState, *Problem) {
	via, u, problem := p.Endpoints(peer, cidr)
	if problem != nil {
		return BackendState{}, problem
	}
	if !u.IsNeighbor(via) {
		return BackendState{}, &Problem{
			[]string{peer.Name},
			fmt.Sprintf("node %s: its address %s is not on-link on %s (%v)", peer.Name, via, u.Link, u.OnLink),
			"host-gw needs all nodes on one network; move the node there, or use a tunnel (vxlan)",
		}
	}
	r := p.Route(cidr)
	r.Gw, r.Link = via, u.Link
	return BackendState{Host: state.Space{Routes: []state.Route{r}}}, nil
}

const blackhole, unreachable = 6, 7 // RTN_BLACKHOLE, RTN_UNREACHABLE

// refusing returns a route of the same destination that refuses packets.
func refusing(r state.Route, kind uint8) state.Route {
	r = state.Route{Dst: r.Dst, Metric: r.Metric, Protocol: r.Protocol, Type: kind}
	if familyOf(r.Dst.Addr()) == 6 {
		r.Link = "lo" // as the kernel does
	}
	return r
}

// blackholes returns routes that reject packets to unused addresses of self's prefixes: the default route would send
// them back, and a borrowed address's block route would send it to the block's node. Blocks are unreachable (ICMP
// error), podCIDRs are blackholes (silent), as the configuration key says.
func (p *Planner) blackholes(unusable map[claim]bool) []state.Route {
	var out []state.Route
	refuse := func(cidr netip.Prefix, kind uint8) { out = append(out, refusing(p.Route(cidr), kind)) }
	if p.cfg.Blackhole {
		for _, cidr := range firstPerFamily(p.self.PodCIDRs) {
			refuse(cidr, blackhole)
		}
	}
	for _, s := range p.pools.byNode[p.self.Name] {
		if !s.unmanaged && !unusable[claim{p.self.Name, s.cidr, ofPool}] {
			// one that contains a node's own address would disconnect that node
			refuse(s.cidr, unreachable)
		}
	}
	return out
}
