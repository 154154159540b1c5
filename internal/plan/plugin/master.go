// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"slices"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/state"
)

// masterConf is what macvlan, ipvlan and vlan say of the link that theirs is made upon.
type masterConf struct {
	Master          string `json:"master"`
	LinkInContainer bool   `json:"linkInContainer"`
	MTU             int    `json:"mtu"`

	ipam bool // whether the ipam section names a type
}

// check refuses what no link can be, and reads whether addresses are wanted.
func (c *masterConf) check(conf model.PluginConf) error {
	section, err := ipamSection(conf)
	if err != nil {
		return err
	}
	c.ipam = section != nil
	if c.Master == lo {
		return model.Faultf(model.CodeInvalidConf, "ip link shows the links that there are",
			`plugin %s: master "lo" leads nowhere`, conf.Type)
	}
	if c.Master != "" {
		if err := checkMasterName(conf, c.Master); err != nil {
			return err
		}
	}
	return checkMTU(conf, c.MTU)
}

// checkMasterName refuses what is no link's name and no alternative one, which may be longer.
func checkMasterName(conf model.PluginConf, name string) error {
	if checkDeviceName(name) == nil {
		return nil
	}
	return model.Faultf(model.CodeInvalidConf, "ip link shows the links that there are",
		"plugin %s: master %q is no link's name", conf.Type, name)
}

func (c masterConf) space() state.SpaceName {
	if c.LinkInContainer {
		return state.Pod
	}
	return state.Host
}

// where is the space in words.
func (c masterConf) where() string {
	if c.LinkInContainer {
		return "in the container"
	}
	return "on the node"
}

// queries ask for the master: the named one, or the link of the default route.
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

// master is the link that the new one is made upon.
func (c masterConf) master(in Input) (state.Link, error) {
	if c.LinkInContainer && c.Master != "" {
		// A link that the same list makes is perhaps not there yet.
		planned := in.Chain.Fragment.Pod.Links
		i := slices.IndexFunc(planned, func(l state.Link) bool {
			return l.Name == c.Master && (l.Kind != "" || l.From != nil)
		})
		if i >= 0 {
			return planned[i], c.checkMTU(in, planned[i])
		}
	}
	var have state.Answer
	if c.Master != "" {
		if have = in.Answers[c.named()]; !have.Found {
			return state.Link{}, model.Faultf(model.CodeInvalidConf, "ip link shows the links that there are",
				"plugin %s: master %q does not exist %s", in.Conf.Type, c.Master, c.where())
		}
		return have.Link, c.checkMTU(in, have.Link)
	}
	for _, q := range c.defaults() {
		if have = in.Answers[q]; have.Found {
			return have.Link, c.checkMTU(in, have.Link)
		}
	}
	return state.Link{}, model.Faultf(model.CodeInvalidConf, "name the link to use",
		"plugin %s: master is missing, and there is no default route %s",
		in.Conf.Type, c.where())
}

// checkMTU refuses an MTU above the master's.
func (c masterConf) checkMTU(in Input, master state.Link) error {
	if master.MTU == 0 || c.MTU <= master.MTU {
		return nil
	}
	return model.Faultf(model.CodeInvalidConf, "leave mtu out to have the master's",
		"plugin %s: mtu %d is above the %d of master %q",
		in.Conf.Type, c.MTU, master.MTU, master.Name)
}

// ready tells whether the master is there; one in a container is not looked for.
func (c masterConf) ready(in Input) error {
	if c.LinkInContainer {
		return nil
	}
	_, err := c.master(in)
	return err
}

// readyQueries ask for the master on the node.
func (c masterConf) readyQueries() []state.Query {
	if c.LinkInContainer {
		return nil
	}
	return c.queries()
}

// isDown tells whether nothing can be heard over a link for now.
func isDown(l state.Link) bool { return l.Up != nil && !*l.Up }
