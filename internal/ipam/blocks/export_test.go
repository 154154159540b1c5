// SPDX-License-Identifier: Apache-2.0

package blocks

import "context"

// Tend is what Run does when a watch has told everything, once.
func (e *Engine) Tend(ctx context.Context) error {
	e.mu.Lock()
	e.synced = false
	for _, p := range e.pools {
		p.stale, p.full = true, false
		for _, b := range p.order {
			b.stale = true
		}
	}
	e.mu.Unlock()
	return e.tend(ctx)
}
