// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"net/netip"
	"slices"
)

// PeerPath is how one prefix of a peer is reached, for status output and probes.
type PeerPath struct {
	CIDR netip.Prefix
	// Link is the outgoing link; Tunnel: it is a tunnel.
	Link   string
	Tunnel bool
	// MTU is the link's MTU, in bytes; 0 if it is not known.
	MTU int
	// Gateway is the route's, inside of a tunnel; invalid if it has none.
	Gateway netip.Addr
	// Far is the peer's underlay address, Underlay this node's link to it.
	Far      netip.Addr
	Underlay Underlay
}

// PeerPaths returns the paths to a peer's pods, one for each prefix that is reached.
func (t Topology) PeerPaths(p *Peer) []PeerPath {
	var out []PeerPath
	for _, route := range p.Fragment.Host.Routes {
		if !slices.Contains(p.PodCIDRs, route.Dst) && !slices.Contains(p.Blocks, route.Dst) {
			continue
		}
		r := PeerPath{CIDR: route.Dst, Link: route.Link, Gateway: route.Gw}
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
