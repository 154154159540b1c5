// SPDX-License-Identifier: Apache-2.0

package blocks

import "context"

// Reconcile is one pass of Run after a full resync.
func (e *Engine) Reconcile(ctx context.Context) error {
	e.state.mu.Lock()
	e.state.synced = false
	for _, p := range e.state.pools {
		p.stale, p.noFreeBlock = true, false
		for _, b := range p.order {
			b.stale = true
		}
	}
	e.state.mu.Unlock()
	return e.reconciler.reconcile(ctx)
}
