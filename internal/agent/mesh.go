// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"path/filepath"

	"golang.org/x/sync/errgroup"

	"github.com/weft-net/weft/internal/config"
	"github.com/weft-net/weft/internal/plan/mesh"
	"github.com/weft-net/weft/internal/reconcile"
)

// mesh follows the store and keeps the node's routes to its peers, until ctx ends. Over another vendor's network that
// vendor keeps them.
func (a *agent) mesh(ctx context.Context) error {
	if a.cfg.Network.Mode == config.ModeMultus {
		return a.facts.Run(ctx)
	}
	keeper := reconcile.New(reconcile.Config{
		Facts: a.facts, Host: a.host, StatusFile: filepath.Join(a.cfg.StateDir, reconcile.StatusFile),
		Mesh: a.meshConfig(), Repaired: a.repaired(), Log: a.cfg.Log, Now: a.cfg.Now, After: a.cfg.After,
	})
	parts, ctx := errgroup.WithContext(ctx)
	parts.Go(func() error { return ended(ctx, a.facts.Run(ctx)) })
	parts.Go(func() error { return ended(ctx, keeper.Run(ctx)) })
	return parts.Wait()
}

// meshConfig is what the configuration says of the mesh.
func (a *agent) meshConfig() mesh.Config {
	cfg := mesh.Config{Backend: a.cfg.Network.Encapsulation}
	if a.cfg.Network.Masquerade {
		cfg.Masquerade = a.cfg.Network.ClusterCIDRs
	}
	return cfg
}
