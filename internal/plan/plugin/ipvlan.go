// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/state"
)

// Ipvlan puts the container on the wire of one of the node's links, with that link's MAC: the kernel tells containers
// apart by their addresses.
type Ipvlan struct{}

type ipvlanConf struct {
	masterConf
	Mode string `json:"mode"`
}

// Type is "ipvlan".
func (Ipvlan) Type() string { return "ipvlan" }

// Capabilities says what it can beside planning.
func (v Ipvlan) Capabilities() Capabilities { return Capabilities{MakesInterface: true, Readiness: v} }

// Keys are the options of the reference plugin.
func (Ipvlan) Keys() []string { return interfaceKeys("master", "mode", "mtu", "linkInContainer") }

// IPAM is the ipam section; without one the addresses are those of the plugins before.
func (Ipvlan) IPAM(conf model.PluginConf) ([]byte, error) { return ipamSection(conf) }

// Decode refuses what no ipvlan link can be.
func (Ipvlan) Decode(conf model.PluginConf) (any, error) { return readIpvlan(conf) }

func readIpvlan(conf model.PluginConf) (ipvlanConf, error) {
	var c ipvlanConf
	if err := decode(conf, &c); err != nil {
		return c, err
	}
	switch c.Mode {
	case "":
		c.Mode = "l2"
	case "l2", "l3", "l3s":
	default:
		return c, model.Faultf(model.CodeInvalidConf, "", "plugin ipvlan: mode %q is none of l2, l3 and l3s", c.Mode)
	}
	return c, c.check(conf)
}

// behind finds the master of a chained ipvlan that names none: the only interface of the plugins before.
func (c *ipvlanConf) behind(in Input) error {
	prev := in.Chain.Prev
	if c.Master != "" || prev == nil {
		return nil
	}
	if len(prev.Interfaces) != 1 || prev.Interfaces[0].Name == "" {
		return model.Faultf(model.CodeInvalidConf, "name the link to use",
			"plugin ipvlan: master is missing, and prevResult names %d interfaces, not one", len(prev.Interfaces))
	}
	c.Master = prev.Interfaces[0].Name
	return checkMasterName(in.Conf, c.Master)
}

func (c *ipvlanConf) read(in Input) (err error) {
	if *c, err = decoded(in, readIpvlan); err != nil {
		return err
	}
	if err := c.behind(in); err != nil {
		return err
	}
	if c.ipam || in.Chain.Prev != nil && len(in.Chain.Prev.IPs) > 0 {
		return nil
	}
	return model.Faultf(model.CodeInvalidConf, `add "ipam": {"type": …}`,
		"plugin ipvlan: ipam.type is missing, and no plugin before gave addresses")
}

// Observe asks for the master and whether the interface's name is free.
func (Ipvlan) Observe(in Input) ([]state.Query, error) {
	var c ipvlanConf
	if err := c.read(in); err != nil {
		return nil, err
	}
	return append([]state.Query{freeName(in.Request)}, c.queries()...), checkArgs(in.Request)
}

// ReadyQueries asks for the master.
func (Ipvlan) ReadyQueries(in Input) []state.Query {
	c, err := decoded(in, readIpvlan)
	if err != nil || c.chained() {
		return nil
	}
	return c.readyQueries()
}

// chained tells whether the master is perhaps another plugin's to name.
func (c ipvlanConf) chained() bool { return c.Master == "" && !c.ipam }

// Ready tells whether the master is on the node.
func (Ipvlan) Ready(in Input) error {
	c, err := decoded(in, readIpvlan)
	if err != nil || c.chained() {
		return err
	}
	return c.ready(in)
}

// Plan makes the link upon its master.
func (Ipvlan) Plan(in Input) (Step, error) {
	var c ipvlanConf
	if err := c.read(in); err != nil {
		return Step{}, err
	}
	if err := checkFreeName(in); err != nil {
		return Step{}, err
	}
	master, err := c.master(in)
	if err != nil {
		return Step{}, err
	}
	a, dns, err := c.addresses(in)
	if err != nil {
		return Step{}, err
	}
	i := alone{asks: c.Mode == "l2", deaf: isDown(master), link: state.Link{
		Kind: state.Ipvlan, MAC: master.MAC, MTU: c.MTU, Parent: &state.Parent{Space: c.space(), Name: master.Name},
		Ipvlan: &state.IpvlanAttrs{Mode: c.Mode},
	}}
	step, err := i.step(in, a, dns)
	if err == nil {
		notify(&step.Fragment, in.Request.IfName, true)
	}
	return step, err
}

// addresses are those of the IPAM section, or what the plugins before got.
func (c ipvlanConf) addresses(in Input) (addressed, model.DNS, error) {
	if c.ipam {
		return in.given(true)
	}
	a, err := fromIPAM(in.Conf, in.Chain.Prev)
	return a, in.Chain.Prev.DNS, err
}
