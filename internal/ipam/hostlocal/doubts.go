// SPDX-License-Identifier: Apache-2.0

package hostlocal

import (
	"encoding/json"
	"fmt"
	"path/filepath"

	"github.com/weft-net/weft/internal/ipam"
	"github.com/weft-net/weft/internal/model"
)

// Doubts finds settings that have no effect or surprise.
func (a *Allocator) Doubts(conf json.RawMessage) []model.Doubt {
	s, err := a.settings(ipam.Ask{Conf: conf, Network: "x"})
	if err != nil {
		return nil // Validate says it
	}
	out := s.routes.Doubts()
	var o outer
	var in inner
	if json.Unmarshal(conf, &o) != nil || json.Unmarshal(o.IPAM, &in) != nil {
		return nil
	}
	if in.Subnet == "" && (in.RangeStart != "" || in.RangeEnd != "" || in.Gateway != "") {
		out = append(out, model.Doubt{
			Field: "ipam.subnet", Hint: "move them into ranges",
			Msg: "ipam.rangeStart, rangeEnd and gateway have no effect without ipam.subnet beside them",
		})
	}
	for _, set := range s.sets {
		for _, sp := range set.spans {
			if !sp.subnet.Contains(sp.gateway) {
				out = append(out, model.Doubt{
					Field: set.name + ".gateway", Hint: "choose one in the subnet",
					Msg: fmt.Sprintf("gateway %s is not in subnet %s", sp.gateway, sp.subnet),
				})
			}
		}
	}
	if in.DataDir != "" && !filepath.IsAbs(in.DataDir) {
		out = append(out, model.Doubt{
			Field: "ipam.dataDir", Hint: "write it from the root",
			Msg: fmt.Sprintf("ipam.dataDir %q depends on the directory that a runtime happens to run in", in.DataDir),
		})
	}
	return out
}
