// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"net/netip"
	"slices"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/state"
)

// routeRelocation moves an interface's routes out of the main table: planned ones by changing the plan, those in the
// kernel by removing them.
type routeRelocation struct {
	link    string
	pending state.Fragment // the changed plan
	planned []state.Route  // removed from it
	found   []state.Route  // in the kernel
	moved   []bool         // which of planned and found were moved to a table
}

func (in Input) relocateRoutes() *routeRelocation {
	m := &routeRelocation{link: in.Request.IfName, pending: in.Chain.Pending}
	m.pending.Pod.Addrs = slices.Clone(m.pending.Pod.Addrs)
	var kept []state.Route
	for _, r := range m.pending.Pod.Routes {
		if r.Link == m.link && (r.Table == 0 || r.Table == mainTable) && !r.Absent {
			m.planned = append(m.planned, r)
		} else {
			kept = append(kept, r)
		}
	}
	m.pending.Pod.Routes = kept
	for i, a := range m.pending.Pod.Addrs {
		// The kernel would add the route to the address's subnet to the main table.
		if a.Link == m.link && !a.Absent && !a.NoPrefixRoute && !a.Prefix.IsSingleIP() &&
			!a.Prefix.Addr().IsLinkLocalUnicast() {
			m.pending.Pod.Addrs[i].NoPrefixRoute = true
			m.planned = append(m.planned, connected(a))
		}
	}
	m.found = in.Answers[routesQuery(m.link)].Routes
	m.moved = make([]bool, len(m.planned)+len(m.found))
	return m
}

// connected returns the route that the kernel adds for an address.
func connected(a state.Addr) state.Route {
	r := state.Route{Dst: a.Prefix.Masked(), Link: a.Link}
	if a.Prefix.Addr().Is4() {
		r.Src = a.Prefix.Addr()
	} else {
		r.Metric = 256
	}
	return r
}

// through reports whether a route belongs to an address: its source or gateway is in the address's subnet, its gateway
// is the address's, or it has neither.
func through(ip model.IP, r state.Route) bool {
	generic := !r.Src.IsValid() && !r.Gw.IsValid()
	return generic || ip.Address.Contains(r.Src) || ip.Address.Contains(r.Gw) || r.Gw.IsValid() && r.Gw == ip.Gateway
}

// routes returns the routes of an address, and a default route through its gateway.
func (m *routeRelocation) routes(ip model.IP, table uint32) []state.Route {
	var out []state.Route
	add := func(r state.Route) {
		same := func(o state.Route) bool { return o.Dst == r.Dst && o.Metric == r.Metric }
		if !slices.ContainsFunc(out, same) {
			out = append(out, r)
		}
	}
	for i, r := range slices.Concat(m.planned, m.found) {
		if r.Dst.Addr().Is4() != ip.Address.Addr().Is4() || !through(ip, r) {
			continue
		}
		m.moved[i] = true
		r.Table, r.Protocol = table, 0
		add(r)
	}
	if !ip.Gateway.IsValid() {
		return out
	}
	any := netip.PrefixFrom(netip.IPv4Unspecified(), 0)
	if ip.Address.Addr().Is6() {
		any = netip.PrefixFrom(netip.IPv6Unspecified(), 0)
		link := linkLocal(m.link, state.MAC{}).Prefix.Masked()
		add(
			state.Route{Dst: link, Link: m.link, Table: table, Metric: 256},
		) // otherwise neighbors would be reached through the gateway
	}
	if !slices.ContainsFunc(out, func(r state.Route) bool { return r.Dst == any }) {
		add(state.Route{Dst: any, Gw: ip.Gateway, Link: m.link, Table: table})
	}
	return out
}

// finish removes the moved routes from the main table. A route that belongs to no address stays, and so does the
// link-local route, which has no rule.
func (m *routeRelocation) finish(step *Step) {
	for i, r := range m.planned {
		if !m.moved[i] {
			m.pending.Pod.Routes = append(m.pending.Pod.Routes, r)
		}
	}
	for i, r := range m.found {
		if !m.moved[len(m.planned)+i] || r.Dst.Addr().IsLinkLocalUnicast() {
			continue
		}
		step.Restore.Pod.Routes = append(step.Restore.Pod.Routes, r)
		r.Absent, r.Table, r.Scope, r.Protocol = true, 0, nil, 0
		step.Fragment.Pod.Routes = append(step.Fragment.Pod.Routes, r)
	}
	step.Pending = &m.pending
}
