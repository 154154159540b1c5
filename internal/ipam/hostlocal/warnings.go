// SPDX-License-Identifier: Apache-2.0

package hostlocal

import (
	"encoding/json"
	"fmt"
	"path/filepath"

	"github.com/weft-net/weft/internal/ipam"
	"github.com/weft-net/weft/internal/model"
)

// Warnings returns settings that have no effect or a surprising one.
func (a *Allocator) Warnings(conf json.RawMessage) []model.Warning {
	s, err := a.settings(ipam.Request{Conf: conf, Network: "x"})
	if err != nil {
		return nil // Validate says it
	}
	out := s.routes.Warnings()
	var o outer
	var in inner
	if json.Unmarshal(conf, &o) != nil || json.Unmarshal(o.IPAM, &in) != nil {
		return nil
	}
	if in.Subnet == "" && (in.RangeStart != "" || in.RangeEnd != "" || in.Gateway != "") {
		out = append(out, model.Warning{
			Field: "ipam.subnet", Hint: "move them into ranges",
			Msg: "ipam.rangeStart, rangeEnd and gateway have no effect without ipam.subnet",
		})
	}
	for _, set := range s.sets {
		for _, sp := range set.spans {
			if !sp.subnet.Contains(sp.gateway) {
				out = append(out, model.Warning{
					Field: set.name + ".gateway", Hint: "choose one in the subnet",
					Msg: fmt.Sprintf("gateway %s is not in subnet %s", sp.gateway, sp.subnet),
				})
			}
		}
	}
	if in.DataDir != "" && !filepath.IsAbs(in.DataDir) {
		out = append(out, model.Warning{
			Field: "ipam.dataDir", Hint: "write it from the root",
			Msg: fmt.Sprintf("ipam.dataDir %q depends on the directory that a runtime happens to run in", in.DataDir),
		})
	}
	return out
}
