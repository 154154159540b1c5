// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/state"
)

// Dummy assigns the container addresses on a dummy interface.
type Dummy struct{}

// Type returns "dummy".
func (Dummy) Type() string { return "dummy" }

// Capabilities returns the optional interfaces that the plugin implements.
func (Dummy) Capabilities() Capabilities { return Capabilities{MakesInterface: true} }

// Keys returns the configuration keys that all interface plugins have.
func (Dummy) Keys() []string { return interfaceKeys() }

// IPAM returns the ipam section.
func (Dummy) IPAM(conf model.PluginConf) ([]byte, error) { return ipamSection(conf) }

type dummyConf struct{}

// Decode parses and validates the configuration, which must have an ipam section.
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

// Observe returns the query for the interface's name, which must be free.
func (Dummy) Observe(in Input) ([]state.Query, error) {
	if _, err := decoded(in, readDummy); err != nil {
		return nil, err
	}
	return []state.Query{freeName(in.Request)}, checkArgs(in.Request)
}

// Plan creates the interface.
func (Dummy) Plan(in Input) (Step, error) {
	if _, err := decoded(in, readDummy); err != nil {
		return Step{}, err
	}
	if err := checkFreeName(in); err != nil {
		return Step{}, err
	}
	a, dns, err := in.optionalAddresses(true)
	if err != nil {
		return Step{}, err
	}
	return standaloneLink{link: state.Link{Kind: state.Dummy, MAC: podMAC(in.Request)}}.step(in, a, dns)
}
