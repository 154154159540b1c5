// SPDX-License-Identifier: Apache-2.0

package blocks

import "context"

// Tend is what Run does when a watch has told everything, once.
func (e *Engine) Tend(ctx context.Context) error {
	e.mem.mu.Lock()
	e.mem.synced = false
	for _, p := range e.mem.pools {
		p.stale, p.full = true, false
		for _, b := range p.order {
			b.stale = true
		}
	}
	e.mem.mu.Unlock()
	return e.follower.tend(ctx)
}
