// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/state"
)

// VLAN connects the container to a VLAN of the network of one of the node's interfaces.
type VLAN struct{}

type vlanConf struct {
	masterConf
	dadConf
	// VLANID is 0 where it is missing, as in the reference plugin: frames with a priority and without a VLAN.
	VLANID int `json:"vlanId"`
}

// Type returns "vlan".
func (VLAN) Type() string { return "vlan" }

// Capabilities returns the optional interfaces that the plugin implements.
func (v VLAN) Capabilities() Capabilities { return Capabilities{MakesInterface: true, Readiness: v} }

// Keys returns the configuration keys, those of the reference plugin.
func (VLAN) Keys() []string {
	return interfaceKeys("master", "vlanId", "mtu", "linkInContainer", dadTimeout)
}

// IPAM returns the ipam section.
func (VLAN) IPAM(conf model.PluginConf) ([]byte, error) { return ipamSection(conf) }

// Decode parses and validates the configuration, which must have a master, a VLAN and an ipam section.
func (VLAN) Decode(conf model.PluginConf) (any, error) { return readVLAN(conf) }

func readVLAN(conf model.PluginConf) (vlanConf, error) {
	var c vlanConf
	if err := decode(conf, &c); err != nil {
		return c, err
	}
	if err := c.masterConf.check(conf); err != nil {
		return c, err
	}
	switch {
	case c.Master == "":
		return c, model.Errorf(model.CodeInvalidConf, "set the parent interface of the VLAN",
			"plugin vlan: master is missing")
	case c.VLANID < 0 || c.VLANID > maxVLAN:
		return c, model.Errorf(model.CodeInvalidConf, "", "plugin vlan: vlanId %d is not between 0 and %d",
			c.VLANID, maxVLAN)
	}
	if err := wantIPAM(conf, c.ipam); err != nil {
		return c, err
	}
	return c, c.dadConf.check(conf, c.ipam)
}

// Observe returns the queries for the master and the interface's name, which must be free.
func (VLAN) Observe(in Input) ([]state.Query, error) {
	c, err := decoded(in, readVLAN)
	if err != nil {
		return nil, err
	}
	return append([]state.Query{freeName(in.Request)}, c.queries()...), checkArgs(in.Request)
}

// ReadyQueries returns the queries for the master.
func (VLAN) ReadyQueries(in Input) []state.Query {
	c, err := decoded(in, readVLAN)
	if err != nil {
		return nil
	}
	return c.readyQueries()
}

// Ready returns an error if the master is not on the node or down.
func (VLAN) Ready(in Input) error {
	c, err := decoded(in, readVLAN)
	if err != nil || c.LinkInContainer {
		return err
	}
	_, err = c.upMaster(in)
	return err
}

// upMaster returns the master, which must be up: the kernel sets no VLAN up on a link that is down.
func (c vlanConf) upMaster(in Input) (state.Link, error) {
	master, err := c.master(in)
	if err == nil && isDown(master) {
		return master, model.Errorf(model.CodeInvalidConf, "ip link set "+master.Name+" up",
			"plugin vlan: master %q is down", master.Name)
	}
	return master, err
}

// Plan creates the interface on its master, whose MAC address it uses.
func (VLAN) Plan(in Input) (Step, error) {
	c, err := decoded(in, readVLAN)
	if err != nil {
		return Step{}, err
	}
	if err := checkFreeName(in); err != nil {
		return Step{}, err
	}
	master, err := c.upMaster(in)
	if err != nil {
		return Step{}, err
	}
	a, dns, err := in.optionalAddresses(true)
	if err != nil {
		return Step{}, err
	}
	i := standaloneLink{announce: true, link: state.Link{
		Kind: state.VLAN, MAC: master.MAC, MTU: c.MTU, Parent: &state.Parent{Space: c.space(), Name: master.Name},
		VLAN: &state.VLANAttrs{ID: c.VLANID},
	}}
	step, err := i.step(in, a, dns)
	if err == nil {
		c.probe(&step.Fragment, in.Request.IfName)
	}
	return step, err
}
