// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"strings"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/state"
)

// IPAMOnly allocates addresses for an interface that another vendor's plugin creates: that plugin executes an IPAM
// plugin with its own configuration, as the CNI specification describes. cniserver plans it as the only plugin of a
// list; no plugin binary of that name exists.
type IPAMOnly struct{}

// IPAMOnlyType is IPAMOnly's type.
const IPAMOnlyType = "weft-ipam"

// ipamNetwork is the prefix of the network name under which the addresses are recorded. The plugin that requests them
// may be one that the agent executes itself, for an attachment to the network of the configuration's own name.
const ipamNetwork = IPAMOnlyType + "."

// IPAMNetwork returns the network name under which addresses are recorded for interfaces that a plugin of another
// vendor creates.
func IPAMNetwork(network string) string { return ipamNetwork + network }

// IsIPAMNetwork reports whether IPAMNetwork returned the name.
func IsIPAMNetwork(network string) bool { return strings.HasPrefix(network, ipamNetwork) }

// Type returns "weft-ipam".
func (IPAMOnly) Type() string { return IPAMOnlyType }

// Capabilities returns none: the plugin implements no optional interface.
func (IPAMOnly) Capabilities() Capabilities { return Capabilities{} }

// Keys returns the configuration keys that all plugins have. The others are the other vendor's.
func (IPAMOnly) Keys() []string { return commonKeys() }

// IPAM returns the ipam section unchanged.
func (IPAMOnly) IPAM(conf model.PluginConf) ([]byte, error) { return ipamSection(conf) }

// ipamOnlyConf is the type of the ipam section.
type ipamOnlyConf struct{ ipam string }

// Decode parses and validates the configuration, which must have an ipam section.
func (IPAMOnly) Decode(conf model.PluginConf) (any, error) { return readIPAMOnly(conf) }

func readIPAMOnly(conf model.PluginConf) (ipamOnlyConf, error) {
	section, err := ipamSection(conf)
	if err == nil && section == nil {
		err = model.Errorf(model.CodeInvalidConf, `an IPAM plugin is executed by another plugin, whose key "ipam" names it`,
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

// Observe returns no queries.
func (IPAMOnly) Observe(Input) ([]state.Query, error) { return nil, nil }

// Plan returns the addresses as the result, and an empty fragment. Calico's plugin adds the node's routes to a pod only
// if its IPAM plugin returns routes, and Calico's own IPAM plugin returns one for each address.
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
