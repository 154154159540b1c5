// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/state"
)

// Vlan puts the container into a VLAN of the wire of one of the node's links.
type Vlan struct{}

type vlanConf struct {
	masterConf
	VlanID *int `json:"vlanId"`
}

// Type is "vlan".
func (Vlan) Type() string { return "vlan" }

// Capabilities says what it can beside planning.
func (v Vlan) Capabilities() Capabilities { return Capabilities{MakesInterface: true, Readiness: v} }

// Keys are the options of the reference plugin.
func (Vlan) Keys() []string { return interfaceKeys("master", "vlanId", "mtu", "linkInContainer") }

// IPAM is the ipam section.
func (Vlan) IPAM(conf model.PluginConf) ([]byte, error) { return ipamSection(conf) }

// Decode wants a master, a VLAN and an ipam section.
func (Vlan) Decode(conf model.PluginConf) (any, error) { return readVlan(conf) }

func readVlan(conf model.PluginConf) (vlanConf, error) {
	var c vlanConf
	if err := decode(conf, &c); err != nil {
		return c, err
	}
	if err := c.check(conf); err != nil {
		return c, err
	}
	switch {
	case c.Master == "":
		return c, model.Faultf(model.CodeInvalidConf, "name the link whose wire has the VLAN",
			"plugin vlan: master is missing")
	case c.VlanID == nil:
		return c, model.Faultf(model.CodeInvalidConf, "0 sends frames with a priority and no VLAN",
			"plugin vlan: vlanId is missing")
	case *c.VlanID < 0 || *c.VlanID > mostVlan:
		return c, model.Faultf(model.CodeInvalidConf, "", "plugin vlan: vlanId %d is not between 0 and %d",
			*c.VlanID, mostVlan)
	}
	return c, wantIPAM(conf, c.ipam)
}

// Observe asks for the master and whether the interface's name is free.
func (Vlan) Observe(in Input) ([]state.Query, error) {
	c, err := decoded(in, readVlan)
	if err != nil {
		return nil, err
	}
	return append([]state.Query{freeName(in.Request)}, c.queries()...), checkArgs(in.Request)
}

// ReadyQueries asks for the master.
func (Vlan) ReadyQueries(in Input) []state.Query {
	c, err := decoded(in, readVlan)
	if err != nil {
		return nil
	}
	return c.readyQueries()
}

// Ready tells whether the master is on the node and up.
func (Vlan) Ready(in Input) error {
	c, err := decoded(in, readVlan)
	if err != nil || c.LinkInContainer {
		return err
	}
	_, err = c.upper(in)
	return err
}

// upper is the master, which must be up: the kernel brings no VLAN up over a link that is down.
func (c vlanConf) upper(in Input) (state.Link, error) {
	master, err := c.master(in)
	if err == nil && isDown(master) {
		return master, model.Faultf(model.CodeInvalidConf, "ip link set "+master.Name+" up",
			"plugin vlan: master %q is down", master.Name)
	}
	return master, err
}

// Plan makes the link upon its master, whose MAC it has.
func (Vlan) Plan(in Input) (Step, error) {
	c, err := decoded(in, readVlan)
	if err != nil {
		return Step{}, err
	}
	if err := checkFreeName(in); err != nil {
		return Step{}, err
	}
	master, err := c.upper(in)
	if err != nil {
		return Step{}, err
	}
	a, dns, err := in.given(true)
	if err != nil {
		return Step{}, err
	}
	i := alone{asks: true, link: state.Link{
		Kind: state.Vlan, MAC: master.MAC, MTU: c.MTU, Parent: &state.Parent{Space: c.space(), Name: master.Name},
		Vlan: &state.VlanAttrs{ID: *c.VlanID},
	}}
	return i.step(in, a, dns)
}
