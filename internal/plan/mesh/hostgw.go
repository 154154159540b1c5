// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"fmt"
	"net/netip"
	"slices"

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
	family := familyOf(cidr.Addr())
	via, ok := addrOf(peer, family)
	if !ok {
		return state.Space{}, &Problem{
			[]string{peer.Name},
			fmt.Sprintf("node %s has the podCIDR %s but no IPv%d InternalIP", peer.Name, cidr, family),
			"give the Node an address of that family in status.addresses, or take the podCIDR away",
		}
	}
	u, ok := p.underlay[family]
	if !ok {
		return state.Space{}, &Problem{
			[]string{p.self.Name, peer.Name},
			fmt.Sprintf("node %s has no IPv%d underlay, so no peer's IPv%d pods are reached", p.self.Name, family, family),
			fmt.Sprintf("give node %s an InternalIP of that family that one of its links holds", p.self.Name),
		}
	}
	if !slices.ContainsFunc(u.OnLink, func(o netip.Prefix) bool { return o.Contains(via) }) {
		return state.Space{}, &Problem{
			[]string{peer.Name},
			fmt.Sprintf("node %s: its address %s is no neighbour on %s (%v)", peer.Name, via, u.Link, u.OnLink),
			"host-gw needs all nodes on one network; put the node there",
		}
	}
	return state.Space{Routes: []state.Route{{Dst: cidr, Gw: via, Link: u.Link, Metric: p.metrics[cidr], Protocol: Protocol}}}, nil
}
