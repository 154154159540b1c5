// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/state"
)

// Dummy gives the container addresses on a link that leads nowhere.
type Dummy struct{}

// Type is "dummy".
func (Dummy) Type() string { return "dummy" }

// Capabilities says what it can beside planning.
func (Dummy) Capabilities() Capabilities { return Capabilities{MakesInterface: true} }

// Keys are those of all interfaces.
func (Dummy) Keys() []string { return interfaceKeys() }

// IPAM is the ipam section.
func (Dummy) IPAM(conf model.PluginConf) ([]byte, error) { return ipamSection(conf) }

type dummyConf struct{}

// Decode wants an ipam section.
func (Dummy) Decode(conf model.PluginConf) (any, error) { return readDummy(conf) }

func readDummy(conf model.PluginConf) (dummyConf, error) {
	var c dummyConf
	if err := decode(conf, &c); err != nil {
		return c, err
	}
	section, err := ipamSection(conf)
	if err != nil {
		return c, err
	}
	return c, wantIPAM(conf, section != nil)
}

// Observe asks whether the interface's name is free.
func (Dummy) Observe(in Input) ([]state.Query, error) {
	if _, err := decoded(in, readDummy); err != nil {
		return nil, err
	}
	return []state.Query{freeName(in.Request)}, checkArgs(in.Request)
}

// Plan makes the link.
func (Dummy) Plan(in Input) (Step, error) {
	if _, err := decoded(in, readDummy); err != nil {
		return Step{}, err
	}
	if err := checkFreeName(in); err != nil {
		return Step{}, err
	}
	a, dns, err := in.given(true)
	if err != nil {
		return Step{}, err
	}
	return alone{link: state.Link{Kind: state.Dummy, MAC: podMAC(in.Request)}}.step(in, a, dns)
}
