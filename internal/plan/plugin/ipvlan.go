// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/state"
)

// Ipvlan connects the container to the network of one of the node's interfaces, with that interface's MAC address: the
// kernel demultiplexes by IP address.
type Ipvlan struct{}

type ipvlanConf struct {
	masterConf
	Mode string `json:"mode"`
}

// Type returns "ipvlan".
func (Ipvlan) Type() string { return "ipvlan" }

// Capabilities returns the optional interfaces that the plugin implements.
func (v Ipvlan) Capabilities() Capabilities { return Capabilities{MakesInterface: true, Readiness: v} }

// Keys returns the configuration keys, those of the reference plugin.
func (Ipvlan) Keys() []string { return interfaceKeys("master", "mode", "mtu", "linkInContainer") }

// IPAM returns the ipam section. Without one the addresses are those of the earlier plugins.
func (Ipvlan) IPAM(conf model.PluginConf) ([]byte, error) { return ipamSection(conf) }

// Decode parses and validates the configuration: it rejects settings that no ipvlan interface can have.
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
		return c, model.Errorf(model.CodeInvalidConf, "", "plugin ipvlan: mode %q is not one of l2, l3 and l3s", c.Mode)
	}
	return c, c.check(conf)
}

// resolveMaster sets the master of a chained ipvlan without one: the only interface of the earlier plugins.
func (c *ipvlanConf) resolveMaster(in Input) error {
	prev := in.Chain.Prev
	if c.Master != "" || prev == nil {
		return nil
	}
	if len(prev.Interfaces) != 1 || prev.Interfaces[0].Name == "" {
		return model.Errorf(model.CodeInvalidConf, "set master",
			"plugin ipvlan: master is missing, and prevResult names %d interfaces, not one", len(prev.Interfaces))
	}
	c.Master = prev.Interfaces[0].Name
	return checkMasterName(in.Conf, c.Master)
}

func (c *ipvlanConf) read(in Input) (err error) {
	if *c, err = decoded(in, readIpvlan); err != nil {
		return err
	}
	if err := c.resolveMaster(in); err != nil {
		return err
	}
	if c.ipam || in.Chain.Prev != nil && len(in.Chain.Prev.IPs) > 0 {
		return nil
	}
	return model.Errorf(model.CodeInvalidConf, `add "ipam": {"type": …}`,
		"plugin ipvlan: ipam.type is missing, and no earlier plugin returned addresses")
}

// Observe returns the queries for the master and the interface's name, which must be free.
func (Ipvlan) Observe(in Input) ([]state.Query, error) {
	var c ipvlanConf
	if err := c.read(in); err != nil {
		return nil, err
	}
	return append([]state.Query{freeName(in.Request)}, c.queries()...), checkArgs(in.Request)
}

// ReadyQueries returns the queries for the master.
func (Ipvlan) ReadyQueries(in Input) []state.Query {
	c, err := decoded(in, readIpvlan)
	if err != nil || c.chained() {
		return nil
	}
	return c.readyQueries()
}

// chained reports whether an earlier plugin may provide the master.
func (c ipvlanConf) chained() bool { return c.Master == "" && !c.ipam }

// Ready returns an error if the master is not on the node.
func (Ipvlan) Ready(in Input) error {
	c, err := decoded(in, readIpvlan)
	if err != nil || c.chained() {
		return err
	}
	return c.ready(in)
}

// Plan creates the interface on its master.
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
	i := standaloneLink{announce: c.Mode == "l2", noCarrier: isDown(master), link: state.Link{
		Kind: state.Ipvlan, MAC: master.MAC, MTU: c.MTU, Parent: &state.Parent{Space: c.space(), Name: master.Name},
		Ipvlan: &state.IpvlanAttrs{Mode: c.Mode},
	}}
	step, err := i.step(in, a, dns)
	if err == nil {
		notify(&step.Fragment, in.Request.IfName, true)
	}
	return step, err
}

// addresses returns the addresses of the ipam section, or those of the earlier plugins.
func (c ipvlanConf) addresses(in Input) (addressed, model.DNS, error) {
	if c.ipam {
		return in.optionalAddresses(true)
	}
	a, err := fromIPAM(in.Conf, in.Chain.Prev)
	return a, in.Chain.Prev.DNS, err
}
