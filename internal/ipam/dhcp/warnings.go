// SPDX-License-Identifier: Apache-2.0

package dhcp

import (
	"encoding/json"
	"fmt"

	"github.com/weft-net/weft/internal/model"
)

// Warnings returns settings that have no effect or a surprising one.
func (*Remote) Warnings(raw json.RawMessage) []model.Warning {
	s, err := Read(raw, nil)
	if err != nil {
		return nil // Validate says it
	}
	var c conf
	var in section
	if json.Unmarshal(raw, &c) != nil || json.Unmarshal(c.IPAM, &in) != nil {
		return nil
	}
	var out []model.Warning
	warn := func(field, hint, msg string) { out = append(out, model.Warning{Field: field, Msg: msg, Hint: hint}) }
	if !s.IPv4 {
		const hint = "remove it, or ask for IPv4 too"
		if len(in.Provide) > 0 {
			warn("ipam.provide", hint, "ipam.provide has no effect without IPv4")
		}
		if len(in.Request) > 0 {
			warn("ipam.request", hint, "ipam.request has no effect without IPv4")
		}
		return out
	}
	for i, p := range in.Provide {
		if p.Value == "" && p.FromArg == "" {
			warn(fmt.Sprintf("ipam.provide[%d]", i), "add value or fromArg",
				fmt.Sprintf("ipam.provide[%d]: option %q has no value and is not sent", i, p.Option))
		}
	}
	mask := false
	for _, code := range s.Request {
		mask = mask || code == optSubnetMask
	}
	if !mask {
		warn("ipam.request", `add {"option": "subnet-mask"}`,
			"ipam.request: a server that is not asked for the subnet mask may not tell it, and then there is no address")
	}
	for i, r := range in.Request {
		if r.Option == "" && !r.SkipDefault {
			warn(fmt.Sprintf("ipam.request[%d]", i), "name an option", fmt.Sprintf("ipam.request[%d] asks for nothing", i))
		}
	}
	return out
}
