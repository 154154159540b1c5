// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"encoding/json"
	"net/netip"
	"slices"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/state"
)

// SBR implements source-based routing: packets from an interface's address leave over that interface. Each address has
// a rule and a table of its own with the interface's routes, which are removed from the main table.
type SBR struct{}

type sbrConf struct {
	Table *uint32 `json:"table"`
}

// Type returns "sbr".
func (SBR) Type() string { return "sbr" }

// Capabilities returns the optional interfaces that the plugin implements.
func (s SBR) Capabilities() Capabilities { return Capabilities{Trace: s} }

// Keys returns the configuration keys, those of the reference plugin.
func (SBR) Keys() []string { return append(commonKeys(), "table") }

// IPAM returns nil: the plugin needs no addresses.
func (SBR) IPAM(model.PluginConf) ([]byte, error) { return nil, nil }

// Decode parses and validates the configuration: it rejects the kernel's own tables.
func (SBR) Decode(conf model.PluginConf) (any, error) { return readSBR(conf) }

func readSBR(conf model.PluginConf) (sbrConf, error) {
	var c sbrConf
	if err := decode(conf, &c); err != nil {
		return c, err
	}
	if c.Table != nil && (*c.Table == 0 || *c.Table == localTable) {
		return c, model.Errorf(model.CodeInvalidConf, "leave it out to use a free one",
			"plugin sbr: table %d is the kernel's own", *c.Table)
	}
	return c, nil
}

// These are the kernel's tables (linux/rtnetlink.h), and the first number that is tried for a new one.
const (
	mainTable  = 254
	localTable = 255
	firstTable = 100
)

// Observe returns the queries for the tables, the rules and the interface's routes, unless the list creates the
// interface.
func (SBR) Observe(in Input) ([]state.Query, error) {
	if _, err := decoded(in, readSBR); err != nil {
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

// opens reports whether the interface is planned and not created yet.
func (in Input) opens(name string) bool {
	return slices.ContainsFunc(in.Chain.Pending.Pod.Links, func(l state.Link) bool {
		return l.Name == name && (l.Kind != "" || l.MovedFrom != nil)
	})
}

// Plan adds a rule for each of the interface's addresses and, if no table is configured, moves its routes.
func (s SBR) Plan(in Input) (Step, error) {
	c, err := decoded(in, readSBR)
	if err != nil {
		return Step{}, err
	}
	prev, err := in.prev()
	if err != nil {
		return Step{}, err
	}
	if !in.opens(in.Request.IfName) && !in.Answers[routesQuery(in.Request.IfName)].Found {
		return Step{}, model.Errorf(model.CodeInvalidConf, "put the plugin after the one that creates the interface",
			"plugin sbr: interface %q does not exist in %s", in.Request.IfName, in.Request.Netns)
	}
	ips := addressesOf(prev, in.Request.IfName)
	if len(ips) == 0 {
		return Step{}, model.Errorf(model.CodeInvalidConf, "rules select by source address",
			"plugin sbr: prevResult has no address of interface %q", in.Request.IfName)
	}
	owner := Owner(in.Request.Key())
	step := Step{Fragment: state.Fragment{Owner: owner}, Restore: state.Fragment{Owner: owner}, Result: prev}
	p := in.priorities()
	rule := func(ip model.IP, table uint32) {
		from := full(ip.Address.Addr())
		step.Fragment.Pod.Rules = append(step.Fragment.Pod.Rules, state.Rule{
			Priority: p.next(from), From: from, Table: table,
		})
	}
	if c.Table != nil {
		for _, ip := range ips {
			rule(ip, *c.Table)
		}
		return step, nil
	}
	m := in.relocateRoutes()
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

// addressesOf returns a result's addresses of an interface of the container. An address without an interface applies to
// all.
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

// freeTable returns the first unused table from a number on: without rules and routes, in the kernel and in the plan.
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

// priorities allocates rule priorities as the kernel does by default: before all rules except the first one.
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

// Trace returns the queries for the rules and the interface's addresses.
func (SBR) Trace(in Input) []state.Query {
	return []state.Query{tablesQuery(), {Space: state.Pod, Link: in.Request.IfName}}
}

// Traces returns the rules for the interface's addresses, limited to the configured table if it is valid.
func (SBR) Traces(in Input) Step {
	c, err := decoded(in, readSBR)
	if err != nil {
		c.Table = nil
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
	return step
}

// Warnings reports a table that is always looked up.
func (SBR) Warnings(conf json.RawMessage) []model.Warning {
	c, err := readSBR(model.PluginConf{Type: "sbr", Raw: conf})
	if err != nil || c.Table == nil || *c.Table != mainTable {
		return nil
	}
	return []model.Warning{
		{
			Field: "table", Msg: "table 254 is the main table: the rules have no effect",
			Hint: "leave it out to use a free one",
		},
	}
}
