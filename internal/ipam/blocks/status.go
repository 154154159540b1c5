// SPDX-License-Identifier: Apache-2.0

package blocks

import (
	"context"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/model"
)

// status tells whether each want could be served: from memory, or else by the store.
func (e *Engine) status(ctx context.Context, s settings) error {
	if e.cfg.Objects == nil {
		return model.Faultf(model.CodeNotAvailable, "start the agent with --store-dir or with a cluster",
			"addresses of a pool need the cluster's store, and this agent has none")
	}
	now := e.clock.now()
	for _, w := range s.wants {
		e.mem.mu.Lock()
		p := e.mem.pools[w.pool]
		free := p != nil && p.spare(w, now, nil, 1)
		e.mem.mu.Unlock()
		if free {
			continue
		}
		if _, err := store.Bounded(ctx, func(ctx context.Context) ([]store.Object, error) {
			return e.cfg.Objects.List(ctx, store.AddressPools())
		}); err != nil {
			return model.Faultf(model.CodeNotAvailable, "",
				"%s: no address of this node is free, and the cluster's store does not answer: %w", w.field, err)
		}
	}
	return nil
}

// Counts are how much of what an engine has.
type Counts struct{ Blocks, Free, Held int }

// ServesCluster tells whether anybody here has asked, or may ask, for addresses of the cluster's network.
func (e *Engine) ServesCluster() bool {
	e.mem.mu.Lock()
	defer e.mem.mu.Unlock()
	return e.chooser.serving || len(e.chooser.cluster) > 0
}

// Used tells whether anybody here has asked for pools.
func (e *Engine) Used() bool {
	e.mem.mu.Lock()
	defer e.mem.mu.Unlock()
	return e.mem.used
}
