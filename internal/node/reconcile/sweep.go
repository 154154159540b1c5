// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"slices"

	"github.com/weft-net/weft/internal/kernel"
	"github.com/weft-net/weft/internal/plan/mesh"
	"github.com/weft-net/weft/internal/state"
)

// routeID identifies a route of the mesh.
type routeID struct {
	dst    netip.Prefix
	gw     netip.Addr
	link   string
	metric uint32
}

func identify(r state.Route) routeID { return routeID{r.Dst, r.Gw, r.Link, r.Metric} }

// sweepTables deletes the tables that an agent with another configuration has left.
func (r *Reconciler) sweepTables(ctx context.Context, spaces kernel.Spaces, t mesh.Topology) error {
	stale := state.Fragment{Owner: "mesh/stale"}
	for _, name := range mesh.Tables() {
		if slices.ContainsFunc(t.Node.Host.Tables, func(o state.Table) bool { return o.Name == name }) {
			delete(r.swept, name)
		} else if !r.swept[name] {
			stale.Host.Tables = append(stale.Host.Tables, state.Table{Family: "inet", Name: name})
		}
	}
	if stale.Host.Empty() {
		return nil
	}
	have, err := r.cfg.Host.Read(ctx, stale.Host) // a transaction takes milliseconds, and usually there is no such table
	if err == nil && len(have.Tables) > 0 {
		err = spaces.Remove(ctx, stale)
	}
	if err != nil {
		return fmt.Errorf("stale tables: %w", err)
	}
	for _, table := range stale.Host.Tables {
		r.swept[table.Name] = true
	}
	return nil
}

// Clear deletes everything of a mesh that an earlier agent has left in the node's namespace, for an agent without a
// mesh.
func Clear(ctx context.Context, cfg Config) error {
	r, spaces := New(cfg), kernel.Spaces{Host: cfg.Host}
	stale, _, err := r.stale(ctx, mesh.Topology{}, true)
	if err == nil {
		err = errors.Join(r.sweep(ctx, spaces, stale), r.sweepTables(ctx, spaces, mesh.Topology{}))
	}
	if err == nil && cfg.StatusFile != "" {
		if err = os.Remove(cfg.StatusFile); errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
	}
	return err
}

// marks returns the marks of objects of the mesh. A device that the plan adopts has none before the first pass.
func marks(t mesh.Topology) kernel.Marks {
	m := kernel.Marks{Alias: mesh.Mark, Protocols: []uint8{mesh.Protocol, bootProtocol}}
	for _, l := range t.Node.Host.Links {
		m.Links = append(m.Links, l.Name)
	}
	return m
}

// stale returns the objects that are of the mesh before the pass and are not expected: routes and tunnels of peers that
// left, also while no agent ran. If the underlay of a family is missing, there is no plan for it, and none of its
// objects is stale. Unless known, nor are learned routes. Routes of other programs are left to takeOver.
func (r *Reconciler) stale(
	ctx context.Context, t mesh.Topology, known bool,
) (stale state.Fragment, left []state.Route, err error) {
	stale.Owner = "mesh/stale"
	before, err := r.cfg.Host.ReadMarked(ctx, marks(t))
	if err != nil {
		return stale, nil, err
	}
	lost := t.LostFamilies
	held := func(p netip.Prefix) bool {
		return slices.ContainsFunc(lost, func(family int) bool { return p.Addr().Is4() == (family == 4) })
	}
	for _, route := range before.Routes {
		if route.Protocol != mesh.Protocol && !r.tookOver {
			left = append(left, route)
		}
		if !mesh.Owns(route) || held(route.Dst) || !known && mesh.IsLearned(route) {
			continue
		}
		switch over := r.expect.unexpected(route); {
		case len(over) == 1+len(route.NextHops):
			stale.Host.Routes = append(stale.Host.Routes, route)
		case route.Dst.Addr().Is6(): // whose next hops are routes of their own; a route of IPv4 was replaced as a whole
			stale.Host.Routes = append(stale.Host.Routes, over...)
		}
	}
	for _, l := range before.Links {
		if l.Alias == mesh.Mark && !r.expect.links[l.Name] && len(lost) == 0 {
			stale.Host.Links = append(stale.Host.Links, state.Link{Name: l.Name, Kind: l.Kind, Alias: l.Alias})
		}
	}
	for _, n := range before.Neighs {
		if !r.expect.hasNeigh(n) && r.expect.links[n.Link] {
			stale.Host.Neighs = append(stale.Host.Neighs, n)
		}
	}
	for _, f := range before.FDBs {
		if !r.expect.hasFDB(f) && r.expect.links[f.Link] {
			stale.Host.FDBs = append(stale.Host.FDBs, f)
		}
	}
	return stale, left, nil
}

// sweep deletes stale objects.
func (r *Reconciler) sweep(ctx context.Context, spaces kernel.Spaces, stale state.Fragment) error {
	if stale.Host.Empty() {
		return nil
	}
	if err := spaces.Remove(ctx, stale); err != nil {
		return fmt.Errorf("stale objects of peers: %w", err)
	}
	r.cfg.Log.Info("stale objects of peers are deleted", "routes", len(stale.Host.Routes), "tunnels", len(stale.Host.FDBs),
		"links", len(stale.Host.Links))
	return nil
}
