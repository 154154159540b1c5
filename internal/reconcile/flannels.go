// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"net/netip"

	"github.com/weft-net/weft/internal/plan/mesh"
	"github.com/weft-net/weft/internal/state"
)

// flannels tells routes that flannel has left on a node which weft took over. They have no metric, so they go before weft's
// own and would lead on to where a peer was once. They are taken away after weft's own are there, so no packet is lost.
type flannels struct {
	own      map[string]bool       // the mesh's own links: flannel's were adopted
	underlay map[string]bool       // the links to peers
	planned  map[netip.Prefix]bool // the prefixes of peers
}

// What routes have that say nothing of it: the protocol boot, the metric 0 of IPv4 and 1024 of IPv6.
const (
	bootProtocol = 3
	usualMetric6 = 1024
)

// made tells whether a route is such a one: over a link of the mesh with the peer's end as its gateway, or over the
// underlay to exactly the prefix of a peer. All others are somebody else's.
func (f flannels) made(r state.Route) bool {
	if r.Protocol != bootProtocol || r.Table != 0 && r.Table != mainTable || !r.Gw.IsValid() || len(r.Beside) > 0 {
		return false
	}
	if r.Metric != 0 && (r.Dst.Addr().Is4() || r.Metric != usualMetric6) {
		return false
	}
	if f.own[r.Link] {
		return r.Gw == r.Dst.Masked().Addr()
	}
	return f.underlay[r.Link] && f.planned[r.Dst]
}

const mainTable = 254

// ownLinks are the links that bear the mesh's mark.
func ownLinks(have state.Space) map[string]bool {
	out := map[string]bool{}
	for _, l := range have.Links {
		if l.Alias == mesh.Mark {
			out[l.Name] = true
		}
	}
	return out
}
