// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"net/netip"
	"slices"
)

// Reach is how the pods of one family of a peer are reached, for those who show it or try it.
type Reach struct {
	CIDR netip.Prefix
	// Link is where packets leave, Tunnel tells that it is one.
	Link   string
	Tunnel bool
	// MTU is the largest packet that the link takes; 0 when that is not known.
	MTU int
	// Far is the peer's address on the wire, Underlay this node's end of it.
	Far      netip.Addr
	Underlay Underlay
}

// Reaches are the ways to a peer's pods, one a prefix that is reached.
func (t Topology) Reaches(p Peer) []Reach {
	var out []Reach
	for _, route := range p.Fragment.Host.Routes {
		if !slices.Contains(p.PodCIDRs, route.Dst) && !slices.Contains(p.Blocks, route.Dst) {
			continue
		}
		r := Reach{CIDR: route.Dst, Link: route.Link}
		for _, u := range t.Underlay {
			if familyOf(u.Address) == familyOf(route.Dst.Addr()) {
				r.Underlay = u
			}
		}
		for _, a := range p.Addrs {
			if !r.Far.IsValid() && familyOf(a) == familyOf(route.Dst.Addr()) {
				r.Far = a
			}
		}
		if r.MTU = r.Underlay.MTU; r.Link != r.Underlay.Link {
			for _, l := range t.Node.Host.Links {
				if l.Name == r.Link {
					r.Tunnel, r.MTU = true, l.MTU
				}
			}
		} else if route.Gw.IsValid() {
			r.Far = route.Gw
		}
		out = append(out, r)
	}
	return out
}
