// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"net/netip"
	"slices"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/state"
)

// Unmanaged returns the addresses outside IPAM that the request's pod uses, and its floating IPs. It returns none if
// the annotations are invalid.
func (Calico) Unmanaged(in Input) []netip.Addr {
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
	w, err := c.spec(r)
	if err != nil {
		return nil
	}
	return slices.Concat(w.noIPAM, w.floating)
}

// nodeAddrQuery returns the query whether an address is one of the node's.
func nodeAddrQuery(a netip.Addr) state.Query { return state.Query{Space: state.Host, LinkOf: a} }

// checkNotNodeAddr rejects addresses of the node: traffic for the node would be sent to the pod, and the pod could send
// as the node, which no policy restricts.
func checkNotNodeAddr(in Input) error {
	for _, a := range (Calico{}).Unmanaged(in) {
		if have := in.Answers[nodeAddrQuery(a)]; have.Found {
			return model.Errorf(model.CodeInUse, "choose another address",
				"annotation %sipAddrsNoIpam or floatingIPs: %s is the node's own, on %s", calicoCNI, a, have.Link.Name)
		}
	}
	return nil
}
