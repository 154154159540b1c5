// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"slices"

	"github.com/weft-net/weft/internal/calico"
	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/cluster/store/dir"
	"github.com/weft-net/weft/internal/lab/connectivity"
)

// skippedServices returns the Services: a lab has no kube-proxy.
func skippedServices(objects []store.Object) []connectivity.Skip {
	out := []connectivity.Skip{}
	for _, o := range objects {
		if o.Is("Service") {
			out = append(out, connectivity.Skip{Name: o.Key.String(), Reason: "no kube-proxy runs in a lab"})
		}
	}
	return out
}

// skippedPolicies returns the network policies of the store if no agent runs that can evaluate them. All pairs are then
// expected to be reachable.
func (st Status) skippedPolicies() ([]connectivity.Skip, error) {
	if slices.ContainsFunc(st.Nodes, func(n NodeStatus) bool { return n.Agent == Running }) {
		return nil, nil
	}
	s, err := dir.Open(Dir(st.Dir).Store())
	if err != nil {
		return nil, err
	}
	objects, err := s.List("")
	var out []connectivity.Skip
	for _, o := range objects {
		if slices.ContainsFunc(calico.AllPolicyKinds(), func(k store.Kind) bool { return o.Key.Of(k) }) {
			out = append(out, connectivity.Skip{Name: o.Key.String(), Reason: "no agent is running to evaluate it"})
		}
	}
	return out, err
}
