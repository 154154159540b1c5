// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"slices"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/state"
)

// VRF adds the container's interface to a VRF of the container, which has a routing table of its own.
type VRF struct{}

type vrfConf struct {
	Name  string `json:"vrfname"`
	Table uint32 `json:"table"`
}

// Type returns "vrf".
func (VRF) Type() string { return "vrf" }

// Capabilities returns the optional interfaces that the plugin implements.
func (v VRF) Capabilities() Capabilities { return Capabilities{Check: v, Trace: v} }

// Keys returns the configuration keys, those of the reference plugin.
func (VRF) Keys() []string { return append(commonKeys(), "vrfname", "table") }

// IPAM returns nil: the plugin needs no addresses.
func (VRF) IPAM(model.PluginConf) ([]byte, error) { return nil, nil }

// Decode parses and validates the configuration, which must have the VRF's name.
func (VRF) Decode(conf model.PluginConf) (any, error) { return readVRF(conf) }

func readVRF(conf model.PluginConf) (vrfConf, error) {
	var c vrfConf
	if err := decode(conf, &c); err != nil {
		return c, err
	}
	if c.Name == "" {
		return c, model.Errorf(model.CodeInvalidConf, "name the VRF of the container", "plugin vrf: vrfname is missing")
	}
	if err := checkLinkName(conf, "vrfname", c.Name); err != nil {
		return c, err
	}
	if c.Table == mainTable || c.Table == localTable {
		return c, model.Errorf(model.CodeInvalidConf, "leave it out to use a free one",
			"plugin vrf: table %d is the kernel's own", c.Table)
	}
	return c, nil
}

func (c vrfConf) query() state.Query { return state.Query{Space: state.Pod, Link: c.Name} }

// Observe returns the queries for the VRF, the tables and the interface, unless the list creates it.
func (VRF) Observe(in Input) ([]state.Query, error) {
	c, err := decoded(in, readVRF)
	if err != nil {
		return nil, err
	}
	queries := []state.Query{c.query(), tablesQuery()}
	if !in.opens(in.Request.IfName) {
		queries = append(queries, state.Query{Space: state.Pod, Link: in.Request.IfName}, ownRoutes(in.Request.IfName))
	}
	return queries, checkArgs(in.Request)
}

// ownRoutes returns the query for an interface's routes that the kernel did not add.
func ownRoutes(link string) state.Query { return state.Query{Space: state.Pod, Routes: link} }

// Plan adds the interface to the VRF. Its routes are moved to the VRF's table; the kernel moves those to its subnets.
func (VRF) Plan(in Input) (Step, error) {
	c, err := decoded(in, readVRF)
	if err != nil {
		return Step{}, err
	}
	prev, err := in.prev()
	if err != nil {
		return Step{}, err
	}
	name := in.Request.IfName
	if err := c.checkInterface(in); err != nil {
		return Step{}, err
	}
	vrf, err := c.device(in)
	if err != nil {
		return Step{}, err
	}
	owner := Owner(in.Request.Key())
	step := Step{Fragment: state.Fragment{Owner: owner}, Restore: state.Fragment{Owner: owner}, Result: prev}
	step.Fragment.Pod.Links = []state.Link{vrf, {Name: name, Master: vrf.Name}}
	pending := in.Chain.Pending
	pending.Pod.Routes = slices.Clone(pending.Pod.Routes)
	for i, r := range pending.Pod.Routes {
		if moves(r) && r.Link == name {
			pending.Pod.Routes[i].Table = vrf.VRF.Table
		}
	}
	step.Pending = &pending
	for _, r := range in.Answers[ownRoutes(name)].Routes {
		const fromRouter = 9 // RTPROT_RA
		if r.Protocol == fromRouter {
			continue // the kernel will learn it again
		}
		// The kernel removes all routes when the master changes, those of other tables, too.
		step.Restore.Pod.Routes = append(step.Restore.Pod.Routes, r)
		if moves(r) {
			gone := r
			gone.Absent, gone.Table, gone.Scope, gone.Protocol = true, 0, nil, 0
			step.Fragment.Pod.Routes = append(step.Fragment.Pod.Routes, gone)
			r.Table, r.Protocol = vrf.VRF.Table, 0
		}
		step.Fragment.Pod.Routes = append(step.Fragment.Pod.Routes, r)
	}
	return step, nil
}

// moves reports whether a route is of the main table.
func moves(r state.Route) bool { return (r.Table == 0 || r.Table == mainTable) && !r.Absent }

// checkInterface returns an error if the interface does not exist, or already has a master.
func (c vrfConf) checkInterface(in Input) error {
	name := in.Request.IfName
	if name == c.Name {
		return model.Errorf(model.CodeInvalidConf, "choose another vrfname",
			"plugin vrf: vrfname %q is the interface's own name", c.Name)
	}
	have := in.Answers[state.Query{Space: state.Pod, Link: name}]
	master, there := have.Link.Master, have.Found
	for _, l := range in.Chain.Fragment.Pod.Links {
		if l.Name == name {
			there = true
			if l.Master != "" {
				master = l.Master
			}
		}
	}
	switch {
	case !there:
		return model.Errorf(model.CodeInvalidConf, "put the plugin after the one that creates the interface",
			"plugin vrf: interface %q does not exist in %s", name, in.Request.Netns)
	case master != "":
		return model.Errorf(model.CodeInvalidConf, "an interface has one master",
			"plugin vrf: interface %q is a port of %q already", name, master)
	}
	return nil
}

// device returns the VRF: the existing one, or a new one with the configured table or a free one.
func (c vrfConf) device(in Input) (state.Link, error) {
	l := state.Link{Name: c.Name, Kind: state.VRF, Shared: true}
	have := in.Answers[c.query()]
	switch {
	case !have.Found:
		table := c.Table
		if table == 0 {
			table = in.freeTable(1)
		}
		l.MAC, l.Alias, l.Up = state.SeedMAC(in.Request.ContainerID+"/vrf/"+c.Name), SharedMark, state.On()
		l.VRF = &state.VRFAttrs{Table: table}
		return l, nil
	case have.Link.Kind != state.VRF || have.Link.VRF == nil:
		return l, model.Errorf(model.CodeInvalidConf, "choose another vrfname", "plugin vrf: vrfname %q is not a VRF but %s",
			c.Name, kindName(have.Link))
	case c.Table != 0 && c.Table != have.Link.VRF.Table:
		return l, model.Errorf(model.CodeInvalidConf, "leave table out, or choose another vrfname",
			"plugin vrf: table %d: VRF %q exists with table %d", c.Table, c.Name, have.Link.VRF.Table)
	}
	l.VRF = have.Link.VRF
	if have.Link.Alias == SharedMark {
		l.MAC, l.Alias, l.Up = have.Link.MAC, SharedMark, state.On()
	}
	return l, nil
}

// ExpectQueries returns no queries: the configuration is sufficient.
func (VRF) ExpectQueries(Input) []state.Query { return nil }

// Expect returns the interface's membership in the VRF, and the table if one is configured.
func (VRF) Expect(in Input) (state.Fragment, error) {
	f := state.Fragment{Owner: Owner(in.Request.Key())}
	c, err := decoded(in, readVRF)
	if err != nil {
		return f, err
	}
	vrf := state.Link{Name: c.Name, Kind: state.VRF, Shared: true}
	if c.Table != 0 {
		vrf.VRF = &state.VRFAttrs{Table: c.Table}
	}
	f.Pod.Links = []state.Link{vrf, {Name: in.Request.IfName, Master: c.Name}}
	return f, nil
}

// Trace returns the queries for the VRF and the interface.
func (VRF) Trace(in Input) []state.Query {
	c, err := decoded(in, readVRF)
	if err != nil {
		return nil
	}
	return []state.Query{c.query(), {Space: state.Pod, Link: in.Request.IfName}}
}

// Traces returns the interface's membership in the VRF, and the VRF, which is deleted with its last interface.
func (VRF) Traces(in Input) Step {
	c, err := decoded(in, readVRF)
	if err != nil {
		return Step{}
	}
	step := Step{Fragment: state.Fragment{Owner: Owner(in.Request.Key())}}
	have := in.Answers[c.query()].Link
	member := in.Answers[state.Query{Space: state.Pod, Link: in.Request.IfName}]
	if have.Kind != state.VRF || member.Link.Master != c.Name {
		return step
	}
	step.Fragment.Pod.Links = []state.Link{
		{Name: c.Name, Kind: state.VRF, MAC: have.MAC, Alias: SharedMark, Shared: true},
		{Name: in.Request.IfName, Master: c.Name},
	}
	return step
}
