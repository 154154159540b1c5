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

// sweep takes away the mesh's routes that no plan wants: those of peers that left, also while no agent ran.
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
	if stale.Host.Empty() {
		return nil
	}
	if err := spaces.Remove(ctx, stale); err != nil {
		return fmt.Errorf("stale routes: %w", err)
	}
	r.cfg.Log.Info("took away stale routes", "routes", len(stale.Host.Routes))
	return nil
}
