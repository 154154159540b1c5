// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"

	"github.com/weft-net/weft/internal/kernel"
	"github.com/weft-net/weft/internal/plan/mesh"
	"github.com/weft-net/weft/internal/state"
)

// routeID is all that tells one route of the mesh from another.
type routeID struct {
	dst    netip.Prefix
	gw     netip.Addr
	link   string
	metric uint32
}

func identify(r state.Route) routeID { return routeID{r.Dst, r.Gw, r.Link, r.Metric} }

// sweepTable takes away the masquerade that an agent with another configuration has left.
func (r *Reconciler) sweepTable(ctx context.Context, spaces kernel.Spaces) error {
	if len(r.cfg.Mesh.Masquerade) > 0 || r.swept {
		return nil
	}
	stale := state.Fragment{Owner: "mesh/stale", Host: state.Space{Tables: []state.Table{{Family: "inet", Name: mesh.MasqueradeTable}}}}
	if err := spaces.Remove(ctx, stale); err != nil {
		return fmt.Errorf("stale table %s: %w", mesh.MasqueradeTable, err)
	}
	r.swept = true
	return nil
}

// Clear takes away everything that an agent which kept a mesh has left in the node's namespace: for one that keeps none. What
// is not of the mesh stays.
func Clear(ctx context.Context, cfg Config) error {
	cfg.Mesh.Masquerade = nil
	r, spaces := New(cfg), kernel.Spaces{Host: cfg.Host}
	err := errors.Join(r.sweep(ctx, spaces, mesh.Topology{}), r.sweepTable(ctx, spaces))
	if err == nil && cfg.StatusFile != "" {
		if err = os.Remove(cfg.StatusFile); errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
	}
	return err
}

// sweep takes away what is of the mesh and in no plan: routes and tunnels of peers that left, also while no agent ran.
func (r *Reconciler) sweep(ctx context.Context, spaces kernel.Spaces, t mesh.Topology) error {
	have, err := r.cfg.Host.ReadAll(ctx)
	if err != nil {
		return fmt.Errorf("routes: %w", err)
	}
	wanted := map[routeID]bool{}
	for _, f := range t.Fragments() {
		for _, route := range f.Host.Routes {
			wanted[identify(route)] = true
		}
	}
	stale := state.Fragment{Owner: "mesh/stale"}
	for _, route := range have.Routes {
		if mesh.Owns(route) && !wanted[identify(route)] {
			stale.Host.Routes = append(stale.Host.Routes, route)
		}
	}
	stale.Host.Links, stale.Host.Neighs, stale.Host.FDBs = strayTunnels(have, t)
	if stale.Host.Empty() {
		return nil
	}
	if err := spaces.Remove(ctx, stale); err != nil {
		return fmt.Errorf("what peers left behind: %w", err)
	}
	r.cfg.Log.Info("took away what is of no peer", "routes", len(stale.Host.Routes), "tunnels", len(stale.Host.FDBs), "links", len(stale.Host.Links))
	return nil
}

// strayTunnels are the mesh's own links that no plan wants, and on those that one wants the entries of no peer.
func strayTunnels(have state.Space, t mesh.Topology) (links []state.Link, neighs []state.Neigh, fdbs []state.FDB) {
	wanted := map[any]bool{}
	for _, f := range t.Fragments() {
		for _, l := range f.Host.Links {
			wanted[l.Name] = true
		}
		for _, n := range f.Host.Neighs {
			wanted[state.Neigh{Link: n.Link, IP: n.IP}] = true
		}
		for _, e := range f.Host.FDBs {
			wanted[state.FDB{Link: e.Link, MAC: e.MAC}] = true
		}
	}
	own := map[string]bool{}
	for _, l := range have.Links {
		if l.Alias != mesh.Mark {
			continue
		}
		if own[l.Name] = wanted[l.Name]; !wanted[l.Name] {
			links = append(links, state.Link{Name: l.Name, Kind: l.Kind, Alias: l.Alias})
		}
	}
	for _, n := range have.Neighs {
		if own[n.Link] && !wanted[state.Neigh{Link: n.Link, IP: n.IP}] {
			neighs = append(neighs, n)
		}
	}
	for _, e := range have.FDBs {
		if own[e.Link] && !wanted[state.FDB{Link: e.Link, MAC: e.MAC}] {
			fdbs = append(fdbs, e)
		}
	}
	return links, neighs, fdbs
}
