// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"net/netip"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/state"
)

// A node that was reconfigured from a bridge to routed pods has both until the old pods end. To the pods on the bridge,
// all of the node's prefix is on-link: they resolve routed pods' addresses on the bridge, so the node must answer
// (proxy ARP and NDP).

// bridgeGateways returns the addresses of a bridge with self's prefixes: the first one of each.
func bridgeGateways(self model.Node) []netip.Addr {
	var out []netip.Addr
	for _, p := range firstPerFamily(self.PodCIDRs) {
		out = append(out, p.Addr().Next())
	}
	return out
}

// bridgePods plans the proxy entries on such bridges: for IPv4 a sysctl, for IPv6, where the kernel needs each address,
// one entry for each routed pod. It also returns the families of the bridges.
func (p *Planner) bridgePods() (s state.Space, families []int) {
	if !p.cfg.BridgePods {
		return s, nil
	}
	for _, cidr := range firstPerFamily(p.self.PodCIDRs) {
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
		for _, addr := range p.cfg.RoutedAddrs {
			if cidr.Contains(addr) {
				s.Neighs = append(s.Neighs, state.Neigh{Link: a.Link.Name, IP: addr, Proxy: true})
			}
		}
	}
	return s, families
}
