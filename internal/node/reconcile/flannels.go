// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	"github.com/weft-net/weft/internal/kernel"
	"github.com/weft-net/weft/internal/plan/mesh"
	"github.com/weft-net/weft/internal/state"
)

// flannels recognizes routes that flannel has left on a node that weft took over. They have no metric, so they take
// precedence over weft's own and lead to where a peer was once. They are deleted after weft's own are added, so that no
// packet is lost.
type flannels struct {
	own      map[string]state.Kind // the mesh's own links, where they may have been flannel's
	underlay map[string]bool       // the links to peers
	planned  map[netip.Prefix]bool // the prefixes of peers
	// networks are flannel's, lengths the prefix lengths of self's podCIDRs: flannel assigns one length to all nodes.
	networks []netip.Prefix
	lengths  map[int]bool
}

// Attributes of routes that do not set them: the protocol boot, the metric 0 of IPv4 and 1024 of IPv6.
const (
	bootProtocol = 3
	usualMetric6 = 1024
	mainTable    = 254
)

// made reports whether a route is flannel's: over a link of the mesh to the far end of a tunnel, or over the underlay
// to a present or former podCIDR of a peer. All others belong to other programs.
func (f flannels) made(r state.Route) bool {
	if r.Protocol != bootProtocol || r.Table != 0 && r.Table != mainTable || !r.Gw.IsValid() || len(r.NextHops) > 0 {
		return false
	}
	if r.Metric != 0 && (r.Dst.Addr().Is4() || r.Metric != usualMetric6) {
		return false
	}
	kind, own := f.own[r.Link]
	switch {
	case f.planned[r.Dst]:
		return own || f.underlay[r.Link]
	case own:
		return r.OnLink && (kind == state.IPIP || r.Gw == r.Dst.Masked().Addr())
	}
	return f.underlay[r.Link] && f.lengths[r.Dst.Bits()] &&
		slices.ContainsFunc(f.networks, func(n netip.Prefix) bool { return n.Contains(r.Dst.Addr()) })
}

// takeOver deletes flannel's routes among those that are left, once after a start: flannel does not run any more. Its neighbors and FDB entries
// are deleted by sweep.
func (r *Reconciler) takeOver(ctx context.Context, spaces kernel.Spaces, left []state.Route, t mesh.Topology) error {
	if r.tookOver {
		return nil
	}
	if len(left) == 0 {
		r.tookOver = true
		return nil
	}
	f := flannels{
		own: map[string]state.Kind{}, underlay: map[string]bool{}, planned: map[netip.Prefix]bool{},
		networks: r.cfg.Mesh.Networks, lengths: map[int]bool{},
	}
	for _, l := range t.Node.Host.Links {
		if l.Adopt {
			f.own[l.Name] = l.Kind
		}
	}
	for _, cidr := range t.PodCIDRs {
		f.lengths[cidr.Bits()] = true
	}
	for _, u := range t.Underlay {
		f.underlay[u.Link] = true
	}
	for i := range t.Peers {
		for _, route := range t.Peers[i].Routes() {
			f.planned[route.Dst] = true
		}
	}
	stale := state.Fragment{Owner: "mesh/flannel"}
	for _, route := range left {
		if f.made(route) {
			stale.Host.Routes = append(stale.Host.Routes, route)
		}
	}
	if len(stale.Host.Routes) > 0 {
		if err := spaces.Remove(ctx, stale); err != nil {
			return fmt.Errorf("routes of flannel: %w", err)
		}
		r.cfg.Log.Info("routes of flannel are deleted", "routes", len(stale.Host.Routes))
	}
	r.tookOver = true
	return nil
}
