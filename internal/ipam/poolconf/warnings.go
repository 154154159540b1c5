// SPDX-License-Identifier: Apache-2.0

package poolconf

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/weft-net/weft/internal/ipam"
	"github.com/weft-net/weft/internal/ipam/whereabouts"
	"github.com/weft-net/weft/internal/model"
)

// Warnings returns settings that have no effect or a surprising one.
func (cr *Reader) Warnings(conf json.RawMessage) []model.Warning {
	s, err := cr.Settings(ipam.Request{Conf: conf})
	if err != nil {
		return nil // settings reports it
	}
	var o outer
	fields := map[string]json.RawMessage{}
	if json.Unmarshal(conf, &o) != nil || json.Unmarshal(o.IPAM, &fields) != nil {
		return nil
	}
	out := s.Routes.Warnings()
	for _, k := range whereabouts.IdleKeys() {
		if _, has := fields[k[0]]; has {
			out = append(out, model.Warning{
				Field: "ipam." + k[0], Hint: "leave it out", Msg: fmt.Sprintf("ipam.%s has no effect: %s", k[0], k[1]),
			})
		}
	}
	if s.Gateway.IsValid() && len(s.Wants) > 0 && !slices.ContainsFunc(s.Wants, func(w Want) bool {
		return w.Network.Contains(s.Gateway)
	}) {
		out = append(out, model.Warning{
			Field: "ipam.gateway", Hint: "choose one there",
			Msg: fmt.Sprintf("gateway %s is in no range", s.Gateway),
		})
	}
	return out
}
