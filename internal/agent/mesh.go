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
	cfg := reconcile.Config{
		Facts: a.facts, Host: a.host, StatusFile: filepath.Join(a.cfg.StateDir, reconcile.StatusFile),
		Mesh: a.meshConfig(), Repaired: a.repaired(), Log: a.cfg.Log, Now: a.cfg.Now, After: a.cfg.After,
	}
	parts, ctx := errgroup.WithContext(ctx)
	parts.Go(func() error { return ended(ctx, a.facts.Run(ctx)) })
	parts.Go(func() error {
		if a.cfg.Network.Mode == config.ModeMultus {
			return ended(ctx, a.unmesh(ctx, cfg))
		}
		return ended(ctx, reconcile.New(cfg).Run(ctx))
	})
	return parts.Wait()
}

// unmesh takes away what an agent before has left that kept the mesh itself: its routes would compete with the other vendor's.
func (a *agent) unmesh(ctx context.Context, cfg reconcile.Config) error {
	for {
		err := reconcile.Clear(ctx, cfg)
		if err == nil || ctx.Err() != nil {
			return nil
		}
		a.cfg.Log.Warn("routes of weft's own network are still there", "err", err)
		select {
		case <-ctx.Done():
			return nil
		case <-a.cfg.After(placePeriod):
		}
	}
}

// meshConfig is what the configuration says of the mesh.
func (a *agent) meshConfig() mesh.Config {
	cfg := mesh.Config{Backend: a.cfg.Network.Encapsulation}
	if a.cfg.Network.Masquerade {
		cfg.Masquerade = a.cfg.Network.ClusterCIDRs
	}
	return cfg
}
