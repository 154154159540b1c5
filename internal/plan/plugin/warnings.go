// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"encoding/json"
	"fmt"

	"github.com/weft-net/weft/internal/model"
)

// has reports whether a configuration has a key.
func has(conf json.RawMessage, key string) bool {
	var o map[string]json.RawMessage
	return json.Unmarshal(conf, &o) == nil && o[key] != nil
}

// Warnings reports settings of a bridge that have no effect or contradict each other.
func (Bridge) Warnings(conf json.RawMessage) []model.Warning {
	c, err := readBridge(model.PluginConf{Type: "bridge", Raw: conf})
	if err != nil {
		return nil // Decode reports it
	}
	var out []model.Warning
	warn := func(on bool, field, hint, msg string) {
		if on {
			out = append(out, model.Warning{Field: field, Msg: msg, Hint: hint})
		}
	}
	var gateway struct {
		Is *bool `json:"isGateway"`
	}
	_ = json.Unmarshal(conf, &gateway) // was read above
	warn(c.IsDefaultGateway && gateway.Is != nil && !*gateway.Is, "isGateway", "remove isGateway",
		"isGateway false contradicts isDefaultGateway true, which implies it")
	warn(c.IsGateway && !c.ipam, "isGateway", "add an ipam section", "isGateway has no effect without ipam")
	warn(c.IPMasq && !c.ipam, "ipMasq", "add an ipam section", "ipMasq has no effect without ipam")
	warn(c.ForceAddress && !c.IsGateway, "forceAddress", "set isGateway", "forceAddress has no effect without isGateway")
	warn(c.IPMasqBackend != nil && !c.IPMasq, "ipMasqBackend", "set ipMasq", "ipMasqBackend has no effect without ipMasq")
	warn(c.PreserveDefaultVLAN && !c.filtering(), "preserveDefaultVlan", "set vlan or vlanTrunk",
		"preserveDefaultVlan has no effect without vlan and vlanTrunk")
	warn(c.EnableDAD && !c.ipam, "enabledad", "add an ipam section", "enabledad has no effect without ipam")
	warn(c.VLAN != 0 && c.trunked(c.VLAN), "vlanTrunk", "take it out of vlanTrunk",
		fmt.Sprintf("vlan %d is in vlanTrunk, too: its frames are untagged", c.VLAN))
	for i, t := range c.VLANTrunk {
		warn(t.MinID == nil && t.ID == nil, fmt.Sprintf("vlanTrunk[%d]", i), `write {"id": …} or {"minID": …, "maxID": …}`,
			fmt.Sprintf("vlanTrunk[%d] names no VLAN", i))
	}
	warn(c.IPMasq && c.ipam && !c.IsGateway, "ipMasq", "set isGateway, or let another device be the gateway",
		"ipMasq without isGateway: this node masquerades only what it routes")
	return out
}

// Warnings reports settings of a ptp link that have no effect.
func (PTP) Warnings(conf json.RawMessage) []model.Warning {
	c, err := readPTP(model.PluginConf{Type: "ptp", Raw: conf})
	if err != nil || c.IPMasqBackend == nil || c.IPMasq {
		return nil
	}
	return []model.Warning{{Field: "ipMasqBackend", Msg: "ipMasqBackend has no effect without ipMasq", Hint: "set ipMasq"}}
}

// Warnings reports keys that loopback ignores.
func (Loopback) Warnings(conf json.RawMessage) []model.Warning {
	var out []model.Warning
	for _, key := range []string{"ipam", "mtu", "dns"} {
		if has(conf, key) {
			out = append(out, model.Warning{Field: key, Msg: key + " has no effect on a loopback", Hint: "remove it"})
		}
	}
	return out
}

// Warnings reports settings of a macvlan interface with side effects.
func (Macvlan) Warnings(conf json.RawMessage) []model.Warning {
	c, err := readMacvlan(model.PluginConf{Type: "macvlan", Raw: conf})
	if err != nil || c.Mode != passthru || c.MAC == "" {
		return nil
	}
	return []model.Warning{
		{
			Field: "mac", Msg: "mac also changes the master's MAC address with mode passthru", Hint: "choose another mode, or leave mac out",
		},
	}
}

// Warnings returns a missing VLAN: the reference plugin and the kernel accept it.
func (VLAN) Warnings(conf json.RawMessage) []model.Warning {
	if has(conf, "vlanId") {
		return nil
	}
	return []model.Warning{{
		Field: "vlanId", Msg: "vlanId is missing: frames have a priority and no VLAN", Hint: "name the VLAN",
	}}
}

// Warnings reports settings of a tap device that have no effect.
func (Tap) Warnings(conf json.RawMessage) []model.Warning {
	c, err := readTap(model.PluginConf{Type: "tap", Raw: conf})
	if err != nil || c.Bridge == "" || !c.ipam {
		return nil
	}
	return []model.Warning{{
		Field: "ipam", Msg: "an address of a bridge's port receives no packets",
		Hint: "assign the address to the bridge, or leave bridge out",
	}}
}
