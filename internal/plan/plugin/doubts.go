// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"encoding/json"
	"fmt"

	"github.com/weft-net/weft/internal/model"
)

// has tells whether a configuration sets a key at all.
func has(conf json.RawMessage, key string) bool {
	var o map[string]json.RawMessage
	return json.Unmarshal(conf, &o) == nil && o[key] != nil
}

// Doubts finds settings of a bridge that have no effect or contradict each other.
func (Bridge) Doubts(conf json.RawMessage) []model.Doubt {
	c, err := readBridge(model.PluginConf{Type: "bridge", Raw: conf})
	if err != nil {
		return nil // Decode says it
	}
	var out []model.Doubt
	doubt := func(on bool, field, hint, msg string) {
		if on {
			out = append(out, model.Doubt{Field: field, Msg: msg, Hint: hint})
		}
	}
	var gateway struct {
		Is *bool `json:"isGateway"`
	}
	_ = json.Unmarshal(conf, &gateway) // was read above
	doubt(c.IsDefaultGateway && gateway.Is != nil && !*gateway.Is, "isGateway", "remove isGateway",
		"isGateway false contradicts isDefaultGateway true, which implies it")
	doubt(c.IsGateway && !c.ipam, "isGateway", "add an ipam section", "isGateway has no effect without ipam")
	doubt(c.IPMasq && !c.ipam, "ipMasq", "add an ipam section", "ipMasq has no effect without ipam")
	doubt(c.ForceAddress && !c.IsGateway, "forceAddress", "set isGateway", "forceAddress has no effect without isGateway")
	doubt(c.IPMasqBackend != nil && !c.IPMasq, "ipMasqBackend", "set ipMasq", "ipMasqBackend has no effect without ipMasq")
	doubt(c.PreserveDefaultVlan && !c.filtering(), "preserveDefaultVlan", "set vlan or vlanTrunk",
		"preserveDefaultVlan has no effect without vlan and vlanTrunk")
	doubt(c.EnableDAD && !c.ipam, "enabledad", "add an ipam section", "enabledad has no effect without ipam")
	doubt(c.Vlan != 0 && c.trunked(c.Vlan), "vlanTrunk", "take it out of vlanTrunk",
		fmt.Sprintf("vlan %d is in vlanTrunk too: its frames have no tag", c.Vlan))
	doubt(c.IPMasq && c.ipam && !c.IsGateway, "ipMasq", "set isGateway, or let another device be the gateway",
		"ipMasq without isGateway: this node masquerades only what it routes")
	return out
}

// Doubts finds settings of a ptp link that have no effect.
func (PTP) Doubts(conf json.RawMessage) []model.Doubt {
	c, err := readPTP(model.PluginConf{Type: "ptp", Raw: conf})
	if err != nil || c.IPMasqBackend == nil || c.IPMasq {
		return nil
	}
	return []model.Doubt{{Field: "ipMasqBackend", Msg: "ipMasqBackend has no effect without ipMasq", Hint: "set ipMasq"}}
}

// Doubts finds what a loopback is configured with and never looks at.
func (Loopback) Doubts(conf json.RawMessage) []model.Doubt {
	var out []model.Doubt
	for _, key := range []string{"ipam", "mtu", "dns"} {
		if has(conf, key) {
			out = append(out, model.Doubt{Field: key, Msg: key + " has no effect on a loopback", Hint: "remove it"})
		}
	}
	return out
}

// Doubts finds settings of a macvlan link that do more than is meant.
func (Macvlan) Doubts(conf json.RawMessage) []model.Doubt {
	c, err := readMacvlan(model.PluginConf{Type: "macvlan", Raw: conf})
	if err != nil || c.Mode != passthru || c.MAC == "" {
		return nil
	}
	return []model.Doubt{
		{
			Field: "mac", Msg: "mac becomes the master's too, with mode passthru", Hint: "choose another mode, or leave mac out",
		},
	}
}

// Doubts finds settings of a tap device that have no effect.
func (Tap) Doubts(conf json.RawMessage) []model.Doubt {
	c, err := readTap(model.PluginConf{Type: "tap", Raw: conf})
	if err != nil || c.Bridge == "" || !c.ipam {
		return nil
	}
	return []model.Doubt{{
		Field: "ipam", Msg: "an address of a bridge's port is heard by nobody",
		Hint: "give the bridge the address, or leave bridge out",
	}}
}
