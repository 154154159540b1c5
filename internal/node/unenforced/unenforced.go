// SPDX-License-Identifier: Apache-2.0

// Package unenforced looks for Calico's own policies, which weft does not enforce.
package unenforced

import (
	"context"
	"log/slog"
	"path/filepath"
	"slices"
	"time"

	"github.com/weft-net/weft/internal/calico"
	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/node/doctornote"
)

// period is how often it is asked whether there are policies that weft does not enforce.
const period = time.Hour

// Watch warns of Calico's own policies, which weft does not enforce, when they are others than before. They are written
// into the state directory for weft doctor.
func Watch(
	ctx context.Context, objects store.Objects, stateDir string, log *slog.Logger,
	after func(time.Duration) <-chan time.Time,
) error {
	var was []string
	for {
		now, err := calico.Policies(ctx, objects)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			log.Warn("cannot look for Calico's policies", "err", err)
		case !slices.Equal(was, now):
			if was = now; len(now) > 0 {
				log.Warn("Calico's own policies are not enforced by weft; rewrite them as NetworkPolicy or ClusterNetworkPolicy",
					"policies", calico.Naming(now))
			}
		}
		if err == nil {
			if err := doctornote.Write(filepath.Join(stateDir, calico.PoliciesFile), now, len(now) == 0); err != nil {
				log.Warn("Calico's policies are not noted", "err", err)
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-after(period):
		}
	}
}
