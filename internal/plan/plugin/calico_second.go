// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"net/netip"

	"github.com/weft-net/weft/internal/state"
)

// secondary reports whether the interface belongs to a secondary network of the pod: the default routes are those of
// the primary network.
func (in Input) secondary() bool { return in.Request.Origin != nil && !in.Request.Origin.Primary }

// secondaryRoutes adds the routes of a secondary routed interface. A rule and a routing table of its own select it for
// packets from its addresses; the main table has only the destinations that IPAM returned.
func secondaryRoutes(f *state.Fragment, in Input, veth pair, a addressed) {
	const firstTable = 100 // as in plugin sbr
	table, p := in.freeTable(firstTable), in.priorities()
	add := func(dst netip.Prefix, table uint32) {
		r := state.Route{Dst: dst, Gw: routedGateway4(), Link: veth.pod.Name, Table: table, OnLink: true}
		if dst.Addr().Is6() {
			r.Gw, r.OnLink = linkLocal(veth.pod.Name, veth.host.MAC).Prefix.Addr(), false
		}
		f.Pod.Routes = append(f.Pod.Routes, r)
	}
	if a.v4 {
		add(netip.PrefixFrom(netip.IPv4Unspecified(), 0), table)
	}
	if a.v6 {
		add(netip.PrefixFrom(netip.IPv6Unspecified(), 0), table)
	}
	for _, ip := range a.ips {
		from := full(ip.Address.Addr())
		f.Pod.Rules = append(f.Pod.Rules, state.Rule{
			Priority: p.next(from), From: from, Table: table, IPv6: from.Addr().Is6(),
		})
	}
	for dst := range a.destinations() {
		if dst.Bits() > 0 {
			add(dst, 0)
		}
	}
}
