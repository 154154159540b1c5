// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/state"
)

// Macvlan puts the container on the wire of one of the node's links, with a MAC of its own.
type Macvlan struct{}

type macvlanConf struct {
	masterConf
	macSources
	Mode       string `json:"mode"`
	BcQueueLen uint32 `json:"bcqueuelen"`
}

const passthru = "passthru"

// Type is "macvlan".
func (Macvlan) Type() string { return "macvlan" }

// Capabilities says what it can beside planning.
func (m Macvlan) Capabilities() Capabilities { return Capabilities{MakesInterface: true, Readiness: m} }

// Keys are the options of the reference plugin.
func (Macvlan) Keys() []string {
	return interfaceKeys("master", "mode", "mtu", "mac", "linkInContainer", "bcqueuelen")
}

// IPAM is the ipam section; without one the container only joins the wire.
func (Macvlan) IPAM(conf model.PluginConf) ([]byte, error) { return ipamSection(conf) }

// Decode refuses what no macvlan link can be.
func (Macvlan) Decode(conf model.PluginConf) (any, error) { return readMacvlan(conf) }

func readMacvlan(conf model.PluginConf) (macvlanConf, error) {
	var c macvlanConf
	if err := decode(conf, &c); err != nil {
		return c, err
	}
	switch c.Mode {
	case "":
		c.Mode = "bridge"
	case "bridge", "private", "vepa", passthru:
	default:
		return c, model.Faultf(model.CodeInvalidConf, "",
			"plugin macvlan: mode %q is none of bridge, private, vepa and passthru", c.Mode)
	}
	if c.BcQueueLen > 1<<31-1 {
		return c, model.Faultf(model.CodeInvalidConf, "the kernel's own is 1000", "plugin macvlan: bcqueuelen %d is above %d",
			c.BcQueueLen, 1<<31-1)
	}
	if _, err := c.mac(conf, model.Request{}); err != nil {
		return c, err
	}
	return c, c.check(conf)
}

// Observe asks for the master and whether the interface's name is free.
func (Macvlan) Observe(in Input) ([]state.Query, error) {
	c, err := decoded(in, readMacvlan)
	if err != nil {
		return nil, err
	}
	return append([]state.Query{freeName(in.Request)}, c.queries()...), checkArgs(in.Request)
}

// ReadyQueries asks for the master.
func (Macvlan) ReadyQueries(in Input) []state.Query {
	c, err := decoded(in, readMacvlan)
	if err != nil {
		return nil
	}
	return c.readyQueries()
}

// Ready tells whether the master is on the node.
func (Macvlan) Ready(in Input) error {
	c, err := decoded(in, readMacvlan)
	if err != nil {
		return err
	}
	return c.ready(in)
}

// Plan makes the link upon its master.
func (Macvlan) Plan(in Input) (Step, error) {
	c, err := decoded(in, readMacvlan)
	if err != nil {
		return Step{}, err
	}
	if err := checkFreeName(in); err != nil {
		return Step{}, err
	}
	mac, err := c.mac(in.Conf, in.Request)
	if err != nil {
		return Step{}, err
	}
	master, err := c.master(in)
	if err != nil {
		return Step{}, err
	}
	a, dns, err := in.given(c.ipam)
	if err != nil {
		return Step{}, err
	}
	switch {
	case !mac.IsZero():
	case c.Mode == passthru:
		mac = master.MAC // the two are one
	default:
		mac = podMAC(in.Request)
	}
	i := alone{asks: true, deaf: isDown(master), link: state.Link{
		Kind: state.Macvlan, MAC: mac, MTU: c.MTU, Parent: &state.Parent{Space: c.space(), Name: master.Name},
		Macvlan: &state.MacvlanAttrs{Mode: c.Mode},
	}}
	if n := int(c.BcQueueLen); n > 0 {
		i.link.Macvlan.BcQueueLen = &n
	}
	step, err := i.step(in, a, dns)
	if err == nil && c.ipam {
		notify(&step.Fragment, in.Request.IfName, true)
	}
	return step, err
}
