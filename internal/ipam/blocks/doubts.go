// SPDX-License-Identifier: Apache-2.0

package blocks

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/weft-net/weft/internal/ipam"
	"github.com/weft-net/weft/internal/model"
)

// idleKeys are whereabouts' keys that have no meaning here, each with what stands in its place.
func idleKeys() [][2]string {
	const lease, store = "blocks are claimed with compare-and-swap, no leader is elected", "the agent knows where the cluster's objects are"
	return [][2]string{
		{"leader_lease_duration", lease},
		{"leader_renew_deadline", lease},
		{"leader_retry_period", lease},
		{"sleep_for_race", lease},
		{"reconciler_cron_expression", "nothing is left behind that would have to be collected"},
		{"node_slice_size", "each node has blocks of its own anyway"},
		{"log_file", "the agent has one log"},
		{"log_level", "the agent has one log"},
		{"datastore", store},
		{"etcd_host", store},
		{"etcd_username", store},
		{"etcd_password", store},
		{"etcd_key_file", store},
		{"etcd_cert_file", store},
		{"etcd_ca_cert_file", store},
		{"kubernetes", store},
	}
}

// Doubts finds settings that have no effect or surprise.
func (a *Allocator) Doubts(conf json.RawMessage) []model.Doubt {
	s, err := a.e.settings(ipam.Ask{Conf: conf})
	if err != nil {
		return nil // Validate says it
	}
	var o outer
	fields := map[string]json.RawMessage{}
	if json.Unmarshal(conf, &o) != nil || json.Unmarshal(o.IPAM, &fields) != nil {
		return nil
	}
	out := s.routes.Doubts()
	for _, k := range idleKeys() {
		if _, has := fields[k[0]]; has {
			out = append(out, model.Doubt{Field: "ipam." + k[0], Hint: "leave it out", Msg: fmt.Sprintf("ipam.%s has no effect: %s", k[0], k[1])})
		}
	}
	if s.gateway.IsValid() && len(s.wants) > 0 && !slices.ContainsFunc(s.wants, func(w want) bool { return w.network.Contains(s.gateway) }) {
		out = append(out, model.Doubt{
			Field: "ipam.gateway", Hint: "choose one there",
			Msg: fmt.Sprintf("gateway %s is in no range", s.gateway),
		})
	}
	return out
}
