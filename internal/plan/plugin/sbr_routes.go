// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"net/netip"
	"slices"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/state"
)

// mover moves an interface's routes from the main table: planned ones, which are then planned otherwise, and those in
// the kernel, which are taken away there.
type mover struct {
	link    string
	open    state.Fragment // as it becomes
	planned []state.Route  // taken out of it
	found   []state.Route  // in the kernel
	moved   []bool         // which of planned and found went to a table
}

func (in Input) mover() *mover {
	m := &mover{link: in.Request.IfName, open: in.Chain.Open}
	m.open.Pod.Addrs = slices.Clone(m.open.Pod.Addrs)
	var kept []state.Route
	for _, r := range m.open.Pod.Routes {
		if r.Link == m.link && (r.Table == 0 || r.Table == mainTable) && !r.Absent {
			m.planned = append(m.planned, r)
		} else {
			kept = append(kept, r)
		}
	}
	m.open.Pod.Routes = kept
	for i, a := range m.open.Pod.Addrs {
		// The kernel would put the route to the address's subnet into the main table.
		if a.Link == m.link && !a.Absent && !a.NoPrefixRoute && !a.Prefix.IsSingleIP() &&
			!a.Prefix.Addr().IsLinkLocalUnicast() {
			m.open.Pod.Addrs[i].NoPrefixRoute = true
			m.planned = append(m.planned, connected(a))
		}
	}
	m.found = in.Answers[routesQuery(m.link)].Routes
	m.moved = make([]bool, len(m.planned)+len(m.found))
	return m
}

// connected is the route that the kernel adds for an address.
func connected(a state.Addr) state.Route {
	r := state.Route{Dst: a.Prefix.Masked(), Link: a.Link}
	if a.Prefix.Addr().Is4() {
		r.Src = a.Prefix.Addr()
	} else {
		r.Metric = 256
	}
	return r
}

// through tells whether a route is an address's: it comes from its subnet or leads through it or its gateway, or says
// neither.
func through(ip model.IP, r state.Route) bool {
	generic := !r.Src.IsValid() && !r.Gw.IsValid()
	return generic || ip.Address.Contains(r.Src) || ip.Address.Contains(r.Gw) || r.Gw.IsValid() && r.Gw == ip.Gateway
}

// routes are an address's, and one to its gateway for all the rest.
func (m *mover) routes(ip model.IP, table uint32) []state.Route {
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
		add(state.Route{Dst: link, Link: m.link, Table: table, Metric: 256}) // else the gateway would be asked for neighbors
	}
	if !slices.ContainsFunc(out, func(r state.Route) bool { return r.Dst == any }) {
		add(state.Route{Dst: any, Gw: ip.Gateway, Link: m.link, Table: table})
	}
	return out
}

// finish takes what was moved out of the main table. A route of none of the addresses stays, and so does the one to the
// neighbors' link-local addresses, which have no rule.
func (m *mover) finish(step *Step) {
	for i, r := range m.planned {
		if !m.moved[i] {
			m.open.Pod.Routes = append(m.open.Pod.Routes, r)
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
	step.Open = &m.open
}
