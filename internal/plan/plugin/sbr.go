// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"net/netip"
	"slices"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/state"
)

// SBR routes by source: what a container sends from an interface's address leaves through that interface. Each address
// has a table of its own with the interface's routes, and a rule that leads there; the main table loses them.
type SBR struct{}

type sbrConf struct {
	Table *uint32 `json:"table"`
}

// Type is "sbr".
func (SBR) Type() string { return "sbr" }

// Keys are the options of the reference plugin.
func (SBR) Keys() []string { return append(commonKeys(), "table") }

// IPAM is nothing: it asks for no addresses.
func (SBR) IPAM(model.PluginConf) ([]byte, error) { return nil, nil }

// Validate refuses a table that rules cannot lead to.
func (SBR) Validate(conf model.PluginConf) error {
	_, err := readSBR(conf)
	return err
}

func readSBR(conf model.PluginConf) (sbrConf, error) {
	var c sbrConf
	if err := decode(conf, &c); err != nil {
		return c, err
	}
	if c.Table != nil && (*c.Table == 0 || *c.Table == localTable) {
		return c, model.Faultf(model.CodeInvalidConf, "leave it out to have a free one chosen", "plugin sbr: table %d is the kernel's own", *c.Table)
	}
	return c, nil
}

// The kernel's tables (linux/rtnetlink.h), and where the search for a free one begins.
const (
	mainTable  = 254
	localTable = 255
	firstTable = 100
)

// Observe asks for the tables and the rules, and for the interface's routes unless the list makes the interface.
func (SBR) Observe(in Input) ([]state.Query, error) {
	if _, err := readSBR(in.Conf); err != nil {
		return nil, err
	}
	queries := []state.Query{tablesQuery()}
	if !in.opens(in.Request.IfName) {
		queries = append(queries, routesQuery(in.Request.IfName))
	}
	return queries, checkArgs(in.Request)
}

func tablesQuery() state.Query { return state.Query{Space: state.Pod, Tables: true} }

func routesQuery(link string) state.Query {
	return state.Query{Space: state.Pod, Routes: link, Main: true}
}

// opens tells whether the container's link of that name is planned and not made yet.
func (in Input) opens(name string) bool {
	return slices.ContainsFunc(in.Chain.Open.Pod.Links, func(l state.Link) bool {
		return l.Name == name && (l.Kind != "" || l.From != nil)
	})
}

// Plan gives each of the interface's addresses its rule and, where no table is given, its routes.
func (s SBR) Plan(in Input) (Step, error) {
	c, err := readSBR(in.Conf)
	if err != nil {
		return Step{}, err
	}
	prev, err := in.prev()
	if err != nil {
		return Step{}, err
	}
	if !in.opens(in.Request.IfName) && !in.Answers[routesQuery(in.Request.IfName)].Found {
		return Step{}, model.Faultf(model.CodeInvalidConf, "put the plugin behind the one that makes the interface",
			"plugin sbr: interface %q does not exist in %s", in.Request.IfName, in.Request.Netns)
	}
	ips := addressesOf(prev, in.Request.IfName)
	if len(ips) == 0 {
		return Step{}, model.Faultf(model.CodeInvalidConf, "routes are chosen by the address a packet comes from",
			"plugin sbr: prevResult has no address of interface %q", in.Request.IfName)
	}
	owner := Owner(in.Request.Key())
	step := Step{Fragment: state.Fragment{Owner: owner}, Restore: state.Fragment{Owner: owner}, Result: prev}
	p := in.priorities()
	rule := func(ip model.IP, table uint32) {
		from := full(ip.Address.Addr())
		step.Fragment.Pod.Rules = append(step.Fragment.Pod.Rules, state.Rule{Priority: p.next(from), From: from, Table: table})
	}
	if c.Table != nil {
		for _, ip := range ips {
			rule(ip, *c.Table)
		}
		return step, nil
	}
	m := in.mover()
	table := uint32(firstTable)
	for _, ip := range ips {
		table = in.freeTable(table)
		rule(ip, table)
		step.Fragment.Pod.Routes = append(step.Fragment.Pod.Routes, m.routes(ip, table)...)
		table++
	}
	m.finish(&step)
	return step, nil
}

// addressesOf are a result's addresses of an interface of the container; one that names no interface is everybody's.
func addressesOf(r model.Result, name string) []model.IP {
	var out []model.IP
	for _, ip := range r.IPs {
		i := ip.Interface
		if i == nil || *i < 0 || *i >= len(r.Interfaces) || r.Interfaces[*i].Name == name && r.Interfaces[*i].Sandbox != "" {
			out = append(out, ip)
		}
	}
	return out
}

// freeTable is the first table from that number on which nobody uses: no rule and no route, in the kernel or planned.
func (in Input) freeTable(table uint32) uint32 {
	used := in.Answers[tablesQuery()].Tables
	planned := in.Chain.Fragment.Pod
	taken := func() bool {
		return table >= mainTable-1 && table <= localTable || slices.Contains(used, table) ||
			slices.ContainsFunc(planned.Rules, func(r state.Rule) bool { return r.Table == table }) ||
			slices.ContainsFunc(planned.Routes, func(r state.Route) bool { return r.Table == table })
	}
	for taken() {
		table++
	}
	return table
}

// priorities hands out rules' priorities as the kernel does when nobody chooses: before all others but the first one.
type priorities struct{ least4, least6 uint32 }

func (in Input) priorities() *priorities {
	const mainRule = 32766
	p := &priorities{mainRule, mainRule}
	for _, rules := range [][]state.Rule{in.Answers[tablesQuery()].Rules, in.Chain.Fragment.Pod.Rules} {
		for _, r := range rules {
			least := &p.least4
			if r.IPv6 || r.From.IsValid() && r.From.Addr().Is6() {
				least = &p.least6
			}
			if r.Priority > 0 {
				*least = min(*least, r.Priority)
			}
		}
	}
	return p
}

func (p *priorities) next(from netip.Prefix) uint32 {
	least := &p.least4
	if from.Addr().Is6() {
		least = &p.least6
	}
	*least = max(*least, 2) - 1
	return *least
}

// mover moves an interface's routes from the main table: planned ones, which are then planned otherwise, and those in the
// kernel, which are taken away there.
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
		if a.Link == m.link && !a.Absent && !a.NoPrefixRoute && !a.Prefix.IsSingleIP() && !a.Prefix.Addr().IsLinkLocalUnicast() {
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
		add(state.Route{Dst: link, Link: m.link, Table: table, Metric: 256}) // else the gateway would be asked for neighbours
	}
	if !slices.ContainsFunc(out, func(r state.Route) bool { return r.Dst == any }) {
		add(state.Route{Dst: any, Gw: ip.Gateway, Link: m.link, Table: table})
	}
	return out
}

// finish takes what was moved out of the main table. A route of none of the addresses stays, and so does the one to the
// neighbours' link-local addresses, which have no rule.
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

// Trace asks for the rules and the interface's addresses.
func (SBR) Trace(in Input) ([]state.Query, error) {
	return []state.Query{tablesQuery(), {Space: state.Pod, Link: in.Request.IfName}}, nil
}

// Traces are the rules from the interface's addresses, of the table if one is given.
func (SBR) Traces(in Input) (Step, error) {
	c, err := readSBR(in.Conf)
	if err != nil {
		return Step{}, err
	}
	step := Step{Fragment: state.Fragment{Owner: Owner(in.Request.Key())}}
	addrs := in.Answers[state.Query{Space: state.Pod, Link: in.Request.IfName}].Addrs
	for _, r := range in.Answers[tablesQuery()].Rules {
		mine := func(a state.Addr) bool { return r.From.IsValid() && r.From == full(a.Prefix.Addr()) }
		if (c.Table == nil || *c.Table == r.Table) && slices.ContainsFunc(addrs, mine) {
			r.Foreign = true
			step.Fragment.Pod.Rules = append(step.Fragment.Pod.Rules, r)
		}
	}
	return step, nil
}
