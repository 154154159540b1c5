// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"net/netip"

	"github.com/weft-net/weft/internal/state"
)

// further tells whether the interface is none of a pod's first network: then the pod has default routes already.
func (in Input) further() bool { return in.Request.Origin != nil && !in.Request.Origin.Primary }

// furtherRoutes are those of a pod's further routed interface: what comes from its addresses leaves over it, by a table
// of its own, since nothing else may leave over another one. Beside that only what IPAM names goes there.
func furtherRoutes(f *state.Fragment, in Input, ends pair, a addressed) {
	const firstTable = 100 // as plugin sbr has it
	table, p := in.freeTable(firstTable), in.priorities()
	add := func(dst netip.Prefix, table uint32) {
		r := state.Route{Dst: dst, Gw: routedGateway4(), Link: ends.pod.Name, Table: table, OnLink: true}
		if dst.Addr().Is6() {
			r.Gw, r.OnLink = linkLocal(ends.pod.Name, ends.host.MAC).Prefix.Addr(), false
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
