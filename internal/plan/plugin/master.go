// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"slices"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/state"
)

// masterConf is the configuration of the parent interface that macvlan, ipvlan and vlan have in common.
type masterConf struct {
	Master          string `json:"master"`
	LinkInContainer bool   `json:"linkInContainer"`
	MTU             int    `json:"mtu"`

	ipam bool // the ipam section names a type
}

// check validates the configuration, and reads whether the plugin needs addresses.
func (c *masterConf) check(conf model.PluginConf) error {
	section, err := ipamSection(conf)
	if err != nil {
		return err
	}
	c.ipam = section != nil
	if c.Master == lo {
		return model.Errorf(model.CodeInvalidConf, "ip link lists the interfaces",
			`plugin %s: master "lo" cannot be used`, conf.Type)
	}
	if c.Master != "" {
		if err := checkMasterName(conf, c.Master); err != nil {
			return err
		}
	}
	return checkMTU(conf, c.MTU)
}

// checkMasterName rejects what is neither a valid interface name nor a valid alternative name, which may be longer.
func checkMasterName(conf model.PluginConf, name string) error {
	if checkDeviceName(name) == nil {
		return nil
	}
	return model.Errorf(model.CodeInvalidConf, "ip link lists the interfaces",
		"plugin %s: master %q is not a valid interface name", conf.Type, name)
}

func (c masterConf) space() state.SpaceName {
	if c.LinkInContainer {
		return state.Pod
	}
	return state.Host
}

// where returns the description of the namespace for messages.
func (c masterConf) where() string {
	if c.LinkInContainer {
		return "in the container"
	}
	return "on the node"
}

// queries returns the query for the master: the configured one, or the interface of the default route.
func (c masterConf) queries() []state.Query {
	if c.Master != "" {
		return []state.Query{c.named()}
	}
	return c.defaults()
}

func (c masterConf) named() state.Query {
	return state.Query{Space: c.space(), Device: state.Device{Name: c.Master}}
}

func (c masterConf) defaults() []state.Query {
	return []state.Query{{Space: c.space(), DefaultLink: "4"}, {Space: c.space(), DefaultLink: "6"}}
}

// master returns the parent interface.
func (c masterConf) master(in Input) (state.Link, error) {
	if c.LinkInContainer && c.Master != "" {
		// An interface that the same list creates may not exist yet.
		planned := in.Chain.Fragment.Pod.Links
		i := slices.IndexFunc(planned, func(l state.Link) bool {
			return l.Name == c.Master && (l.Kind != "" || l.MovedFrom != nil)
		})
		if i >= 0 {
			return planned[i], c.checkMTU(in, planned[i])
		}
	}
	var have state.Answer
	if c.Master != "" {
		if have = in.Answers[c.named()]; !have.Found {
			return state.Link{}, model.Errorf(model.CodeInvalidConf, "ip link lists the interfaces",
				"plugin %s: master %q does not exist %s", in.Conf.Type, c.Master, c.where())
		}
		return have.Link, c.checkMTU(in, have.Link)
	}
	for _, q := range c.defaults() {
		if have = in.Answers[q]; have.Found {
			return have.Link, c.checkMTU(in, have.Link)
		}
	}
	return state.Link{}, model.Errorf(model.CodeInvalidConf, "set master",
		"plugin %s: master is missing, and there is no default route %s",
		in.Conf.Type, c.where())
}

// checkMTU refuses an MTU above the master's, as the kernel does for macvlan and vlan links. An ipvlan link may have a
// larger one.
func (c masterConf) checkMTU(in Input, master state.Link) error {
	if master.MTU == 0 || c.MTU <= master.MTU || in.Conf.Type == (Ipvlan{}).Type() {
		return nil
	}
	return model.Errorf(model.CodeInvalidConf, "leave mtu out to use the master's",
		"plugin %s: mtu %d is above the %d of master %q",
		in.Conf.Type, c.MTU, master.MTU, master.Name)
}

// ready returns an error if the master does not exist; a master in a container is not checked.
func (c masterConf) ready(in Input) error {
	if c.LinkInContainer {
		return nil
	}
	_, err := c.master(in)
	return err
}

// readyQueries returns the queries for the master on the node.
func (c masterConf) readyQueries() []state.Query {
	if c.LinkInContainer {
		return nil
	}
	return c.queries()
}

// isDown reports whether a link is administratively down.
func isDown(l state.Link) bool { return l.Up != nil && !*l.Up }
