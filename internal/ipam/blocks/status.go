// SPDX-License-Identifier: Apache-2.0

package blocks

import (
	"context"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/ipam/poolconf"
	"github.com/weft-net/weft/internal/model"
)

// status reports whether each want could be served: from this node's blocks, or else by the datastore.
func (e *Engine) status(ctx context.Context, s poolconf.Settings) error {
	if e.cfg.Objects == nil {
		return model.Errorf(model.CodeNotAvailable, "start the agent with --store-dir or with a cluster",
			"addresses of a pool need a datastore, and this agent has none")
	}
	now := e.clock.now()
	for _, w := range s.Wants {
		e.state.mu.Lock()
		p := e.state.pools[w.Pool]
		free := p != nil && p.hasFree(w, now, nil, 1)
		e.state.mu.Unlock()
		if free {
			continue
		}
		if _, err := store.WithTimeout(ctx, func(ctx context.Context) ([]store.Object, error) {
			return e.cfg.Objects.List(ctx, store.AddressPools())
		}); err != nil {
			return model.Errorf(model.CodeNotAvailable, "",
				"%s: no address of this node is free, and the datastore does not answer: %w", w.Field, err)
		}
	}
	return nil
}

// ServesCluster reports whether addresses of the cluster's network were requested on this node, or may be.
func (e *Engine) ServesCluster() bool {
	e.state.mu.Lock()
	defer e.state.mu.Unlock()
	return e.clusterPools.serving || len(e.clusterPools.cluster) > 0
}

// Used reports whether addresses of pools were requested on this node.
func (e *Engine) Used() bool {
	e.state.mu.Lock()
	defer e.state.mu.Unlock()
	return e.state.used
}
