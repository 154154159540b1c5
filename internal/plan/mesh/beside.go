// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"net/netip"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/state"
)

// A node whose design was changed has pods on a bridge beside routed ones, for as long as they live. To the former all
// of the node's prefix is one network: they ask on the bridge for the others, and somebody has to answer.

// bridgeGateways are the addresses that a bridge of self's prefixes has: the first one of each.
func bridgeGateways(self model.Node) []netip.Addr {
	var out []netip.Addr
	for _, p := range first(self.PodCIDRs) {
		out = append(out, p.Addr().Next())
	}
	return out
}

// beside has the node answer on such bridges for what it routes elsewhere: of IPv4 for all, of IPv6, where the kernel
// wants to be told each address, for those of the routed pods. It gives the families of the bridges, too.
func (p *Planner) beside() (s state.Space, families []int) {
	if !p.cfg.Beside {
		return s, nil
	}
	for _, cidr := range first(p.self.PodCIDRs) {
		a := p.answers[state.Query{Space: state.Host, LinkOf: cidr.Addr().Next()}]
		if !a.Found || a.Link.Kind != state.Bridge {
			continue
		}
		families = append(families, familyOf(cidr.Addr()))
		if cidr.Addr().Is4() {
			s.Sysctls = append(s.Sysctls,
				state.Sysctl{Name: "net/ipv4/conf/" + a.Link.Name + "/proxy_arp", Value: "1", IfPresent: true},
				state.Sysctl{Name: "net/ipv4/neigh/" + a.Link.Name + "/proxy_delay", Value: "0", IfPresent: true})
			continue
		}
		s.Sysctls = append(s.Sysctls, state.Sysctl{
			Name: "net/ipv6/conf/" + a.Link.Name + "/proxy_ndp", Value: "1", IfPresent: true,
		},
			state.Sysctl{Name: "net/ipv6/neigh/" + a.Link.Name + "/proxy_delay", Value: "0", IfPresent: true})
		for _, addr := range p.cfg.Routed {
			if cidr.Contains(addr) {
				s.Neighs = append(s.Neighs, state.Neigh{Link: a.Link.Name, IP: addr, Proxy: true})
			}
		}
	}
	return s, families
}
