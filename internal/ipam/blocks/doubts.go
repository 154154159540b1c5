// SPDX-License-Identifier: Apache-2.0

package blocks

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/weft-net/weft/internal/ipam"
	"github.com/weft-net/weft/internal/ipam/whereabouts"
	"github.com/weft-net/weft/internal/model"
)

// Doubts finds settings that have no effect or surprise.
func (a *Allocator) Doubts(conf json.RawMessage) []model.Doubt {
	s, err := a.e.chooser.settings(ipam.Ask{Conf: conf})
	if err != nil {
		return nil // Validate says it
	}
	var o outer
	fields := map[string]json.RawMessage{}
	if json.Unmarshal(conf, &o) != nil || json.Unmarshal(o.IPAM, &fields) != nil {
		return nil
	}
	out := s.routes.Doubts()
	for _, k := range whereabouts.IdleKeys() {
		if _, has := fields[k[0]]; has {
			out = append(out, model.Doubt{
				Field: "ipam." + k[0], Hint: "leave it out", Msg: fmt.Sprintf("ipam.%s has no effect: %s", k[0], k[1]),
			})
		}
	}
	if s.gateway.IsValid() && len(s.wants) > 0 && !slices.ContainsFunc(s.wants, func(w want) bool {
		return w.network.Contains(s.gateway)
	}) {
		out = append(out, model.Doubt{
			Field: "ipam.gateway", Hint: "choose one there",
			Msg: fmt.Sprintf("gateway %s is in no range", s.gateway),
		})
	}
	return out
}
