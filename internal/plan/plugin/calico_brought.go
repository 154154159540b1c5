// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"net/netip"
	"slices"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/state"
)

// Brought are the addresses that the request's pod brings along, past IPAM, and those that are to lead to it. Of words
// that cannot be read there are none.
func (Calico) Brought(in Input) []netip.Addr {
	r := in.Request
	if r.Origin == nil || !slices.ContainsFunc(r.Origin.Annotations, func(kv [2]string) bool {
		return kv[0] == calicoCNI+"ipAddrsNoIpam" || kv[0] == calicoCNI+"floatingIPs"
	}) {
		return nil
	}
	c, err := decoded(in, readCalico)
	if err != nil {
		return nil
	}
	w, err := c.words(r)
	if err != nil {
		return nil
	}
	return slices.Concat(w.noIPAM, w.floating)
}

// nodesOwn asks whether an address is one of the node's.
func nodesOwn(a netip.Addr) state.Query { return state.Query{Space: state.Host, LinkOf: a} }

// checkNotNodes refuses addresses of the node to pods that bring them along: what is for the node would go to the pod,
// and the pod would speak as the node, which no policy stops.
func checkNotNodes(in Input) error {
	for _, a := range (Calico{}).Brought(in) {
		if have := in.Answers[nodesOwn(a)]; have.Found {
			return model.Faultf(model.CodeTaken, "choose another address",
				"annotation %sipAddrsNoIpam or floatingIPs: %s is the node's own, on %s", calicoCNI, a, have.Link.Name)
		}
	}
	return nil
}
