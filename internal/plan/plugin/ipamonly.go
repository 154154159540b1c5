// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"strings"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/state"
)

// IPAMOnly gives addresses to an interface that another vendor's plugin makes: that plugin executes an IPAM plugin by
// the protocol, with its own configuration. It stands alone in a list, where cniserver puts it: no program of that name
// exists.
type IPAMOnly struct{}

// IPAMOnlyType is IPAMOnly's type.
const IPAMOnlyType = "weft-ipam"

// ipamNetwork begins the name of the network under which the addresses are recorded. The plugin that has them allocated
// may be one that the agent executes itself, for an attachment to the network of the configuration's own name.
const ipamNetwork = IPAMOnlyType + "."

// IPAMNetwork is the name under which addresses for interfaces of a network are recorded when a plugin of another
// vendor makes them.
func IPAMNetwork(network string) string { return ipamNetwork + network }

// IsIPAMNetwork reports whether a name is one of IPAMNetwork's.
func IsIPAMNetwork(network string) bool { return strings.HasPrefix(network, ipamNetwork) }

// Type is "weft-ipam".
func (IPAMOnly) Type() string { return IPAMOnlyType }

// Capabilities are none beside planning.
func (IPAMOnly) Capabilities() Capabilities { return Capabilities{} }

// Keys are those that every plugin has: the others are another vendor's.
func (IPAMOnly) Keys() []string { return commonKeys() }

// IPAM is the ipam section as it stands.
func (IPAMOnly) IPAM(conf model.PluginConf) ([]byte, error) { return ipamSection(conf) }

// ipamOnlyConf is the type of the ipam section.
type ipamOnlyConf struct{ ipam string }

// Decode refuses a configuration without an ipam section.
func (IPAMOnly) Decode(conf model.PluginConf) (any, error) { return readIPAMOnly(conf) }

func readIPAMOnly(conf model.PluginConf) (ipamOnlyConf, error) {
	section, err := ipamSection(conf)
	if err == nil && section == nil {
		err = model.Faultf(model.CodeInvalidConf, `an IPAM plugin is executed by another one, whose "ipam" names it`,
			"ipam: missing")
	}
	if err != nil {
		return ipamOnlyConf{}, err
	}
	var typed struct {
		Type string `json:"type"`
	}
	err = decodeAt(conf, "ipam", section, &typed)
	return ipamOnlyConf{typed.Type}, err
}

// Observe asks nothing.
func (IPAMOnly) Observe(Input) ([]state.Query, error) { return nil, nil }

// Plan makes nothing: the addresses are the result. Calico's plugin makes the node's routes to a pod only where its
// IPAM plugin returns routes, and Calico's own returns one to each address.
func (IPAMOnly) Plan(in Input) (Step, error) {
	result := *in.IPAM
	c, err := decoded(in, readIPAMOnly)
	if err != nil {
		return Step{}, err
	}
	if c.ipam == "calico-ipam" && len(result.Routes) == 0 {
		for _, ip := range result.IPs {
			result.Routes = append(result.Routes, model.Route{Dst: ip.Address})
		}
	}
	return Step{Fragment: state.Fragment{Owner: Owner(in.Request.Key())}, Result: result}, nil
}
