// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/state"
)

// Macvlan connects the container to the network of one of the node's interfaces, with a MAC address of its own.
type Macvlan struct {
	// Agent is set if an agent removes what the last attachment of several leaves: a host shim.
	Agent bool
}

type macvlanConf struct {
	masterConf
	macSources
	dadConf
	Mode       string `json:"mode"`
	BcQueueLen uint32 `json:"bcqueuelen"`
	HostShim   bool   `json:"hostShim"`
}

const passthru = "passthru"

// Type returns "macvlan".
func (Macvlan) Type() string { return "macvlan" }

// Capabilities returns the optional interfaces that the plugin implements.
func (m Macvlan) Capabilities() Capabilities { return Capabilities{MakesInterface: true, Readiness: m} }

// Keys returns the configuration keys, those of the reference plugin.
func (Macvlan) Keys() []string {
	return interfaceKeys("master", "mode", "mtu", "mac", "linkInContainer", "bcqueuelen", dadTimeout, "hostShim")
}

// IPAM returns the ipam section. Without one the plugin provides layer 2 only.
func (Macvlan) IPAM(conf model.PluginConf) ([]byte, error) { return ipamSection(conf) }

// Decode parses and validates the configuration: it rejects settings that no macvlan interface can have.
func (m Macvlan) Decode(conf model.PluginConf) (any, error) {
	c, err := readMacvlan(conf)
	if err == nil {
		err = c.checkHostShim(m.Agent)
	}
	return c, err
}

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
		return c, model.Errorf(model.CodeInvalidConf, "",
			"plugin macvlan: mode %q is not one of bridge, private, vepa and passthru", c.Mode)
	}
	if c.BcQueueLen > 1<<31-1 {
		return c, model.Errorf(model.CodeInvalidConf, "the kernel's default is 1000",
			"plugin macvlan: bcqueuelen %d is above %d", c.BcQueueLen, 1<<31-1)
	}
	if _, err := c.mac(conf, model.Request{}); err != nil {
		return c, err
	}
	if err := c.masterConf.check(conf); err != nil {
		return c, err
	}
	return c, c.dadConf.check(conf, c.ipam)
}

// Observe returns the queries for the master and the interface's name, which must be free.
func (Macvlan) Observe(in Input) ([]state.Query, error) {
	c, err := decoded(in, readMacvlan)
	if err != nil {
		return nil, err
	}
	queries := append([]state.Query{freeName(in.Request)}, c.queries()...)
	if have := c.Master; c.HostShim && have != "" {
		queries = append(queries, state.Query{Space: state.Host, Link: HostShim(have)})
	}
	return queries, checkArgs(in.Request)
}

// ReadyQueries returns the queries for the master.
func (Macvlan) ReadyQueries(in Input) []state.Query {
	c, err := decoded(in, readMacvlan)
	if err != nil {
		return nil
	}
	return c.readyQueries()
}

// Ready returns an error if the master is not on the node.
func (Macvlan) Ready(in Input) error {
	c, err := decoded(in, readMacvlan)
	if err != nil {
		return err
	}
	return c.ready(in)
}

// Plan creates the interface on its master.
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
	a, dns, err := in.optionalAddresses(c.ipam)
	if err != nil {
		return Step{}, err
	}
	switch {
	case !mac.IsZero():
	case c.Mode == passthru:
		mac = master.MAC // with passthru both have one MAC address
	default:
		mac = podMAC(in.Request)
	}
	i := standaloneLink{announce: true, noCarrier: isDown(master), link: state.Link{
		Kind: state.Macvlan, MAC: mac, MTU: c.MTU, Parent: &state.Parent{Space: c.space(), Name: master.Name},
		Macvlan: &state.MacvlanAttrs{Mode: c.Mode},
	}}
	if n := int(c.BcQueueLen); n > 0 {
		i.link.Macvlan.BcQueueLen = &n
	}
	step, err := i.step(in, a, dns)
	if err == nil && c.ipam {
		notify(&step.Fragment, in.Request.IfName, true)
		c.probe(&step.Fragment, in.Request.IfName)
		c.hostShim(in, &step.Fragment, master, a)
	}
	return step, err
}
