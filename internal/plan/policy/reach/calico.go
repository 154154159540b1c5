// SPDX-License-Identifier: Apache-2.0

package reach

import (
	"slices"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/plan/policy"
)

// SetTier adds a tier.
func (in *Input) SetTier(t model.Tier) { in.Tiers = append(in.Tiers, t) }

// SetNetworkSet adds a network set.
func (in *Input) SetNetworkSet(s model.NetworkSet) { in.Sets = append(in.Sets, s) }

// SetServiceAccount adds a service account.
func (in *Input) SetServiceAccount(a model.ServiceAccount) { in.Accounts = append(in.Accounts, a) }

// SetEndpointSlice adds a part of a Service's endpoints.
func (in *Input) SetEndpointSlice(s model.EndpointSlice) { in.Slices = append(in.Slices, s) }

// fill passes them to an index.
func (in *Input) fill(to policy.CalicoFacts) {
	for _, t := range in.Tiers {
		to.SetTier(t)
	}
	for _, s := range in.Sets {
		to.SetNetworkSet(s)
	}
	for _, a := range in.Accounts {
		to.SetServiceAccount(a)
	}
	for _, s := range in.Slices {
		to.SetEndpointSlice(s)
	}
}

// portsOf returns all ports that a rule names at a connection's destination.
func portsOf(r model.PolicyRule) []model.PolicyPort {
	if r.Conditions == nil {
		return r.Ports
	}
	return slices.Concat(r.Conditions.Destination.Ports, r.Conditions.Destination.NotPorts)
}
