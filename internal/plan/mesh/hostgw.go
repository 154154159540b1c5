// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"fmt"
	"net/netip"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/state"
)

// forwarding lets the node pass packets on between its pods and the underlay.
func forwarding(p *planner) state.Space {
	var s state.Space
	if _, ok := p.underlay[4]; ok {
		s.Sysctls = append(s.Sysctls, state.Sysctl{Name: "net/ipv4/ip_forward", Value: "1", Shared: true})
	}
	if _, ok := p.underlay[6]; ok {
		s.Sysctls = append(s.Sysctls, state.Sysctl{Name: "net/ipv6/conf/all/forwarding", Value: "1", Shared: true, IfPresent: true})
	}
	return s
}

// gateway routes a peer's prefix to the peer's own address.
func gateway(p *planner, peer model.Node, cidr netip.Prefix) (state.Space, *Problem) {
	via, u, problem := p.ends(peer, cidr)
	if problem != nil {
		return state.Space{}, problem
	}
	if !u.reaches(via) {
		return state.Space{}, &Problem{
			[]string{peer.Name},
			fmt.Sprintf("node %s: its address %s is no neighbour on %s (%v)", peer.Name, via, u.Link, u.OnLink),
			"host-gw needs all nodes on one network; put the node there, or encapsulate (vxlan)",
		}
	}
	return state.Space{Routes: []state.Route{{Dst: cidr, Gw: via, Link: u.Link, Metric: p.metrics[cidr], Protocol: Protocol}}}, nil
}
