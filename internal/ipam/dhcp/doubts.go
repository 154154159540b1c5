// SPDX-License-Identifier: Apache-2.0

package dhcp

import (
	"encoding/json"
	"fmt"

	"github.com/weft-net/weft/internal/model"
)

// Doubts finds settings that have no effect or surprise.
func (*Remote) Doubts(raw json.RawMessage) []model.Doubt {
	s, err := Read(raw, nil)
	if err != nil {
		return nil // Validate says it
	}
	var c conf
	var in section
	if json.Unmarshal(raw, &c) != nil || json.Unmarshal(c.IPAM, &in) != nil {
		return nil
	}
	var out []model.Doubt
	doubt := func(field, hint, msg string) { out = append(out, model.Doubt{Field: field, Msg: msg, Hint: hint}) }
	if !s.IPv4 {
		const hint = "remove it, or ask for IPv4 too"
		if len(in.Provide) > 0 {
			doubt("ipam.provide", hint, "ipam.provide has no effect without IPv4")
		}
		if len(in.Request) > 0 {
			doubt("ipam.request", hint, "ipam.request has no effect without IPv4")
		}
		return out
	}
	for i, p := range in.Provide {
		if p.Value == "" && p.FromArg == "" {
			doubt(fmt.Sprintf("ipam.provide[%d]", i), "add value or fromArg",
				fmt.Sprintf("ipam.provide[%d]: option %q has no value and is not sent", i, p.Option))
		}
	}
	mask := false
	for _, code := range s.Request {
		mask = mask || code == optSubnetMask
	}
	if !mask {
		doubt("ipam.request", `add {"option": "subnet-mask"}`,
			"ipam.request: a server that is not asked for the subnet mask may not tell it, and then there is no address")
	}
	for i, r := range in.Request {
		if r.Option == "" && !r.SkipDefault {
			doubt(fmt.Sprintf("ipam.request[%d]", i), "name an option", fmt.Sprintf("ipam.request[%d] asks for nothing", i))
		}
	}
	return out
}
