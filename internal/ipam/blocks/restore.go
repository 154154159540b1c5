// SPDX-License-Identifier: Apache-2.0

package blocks

import (
	"context"

	"github.com/weft-net/weft/internal/ipam"
)

// Restore sets which addresses the recorded attachments have. It is called before the first allocation.
func (e *Engine) Restore(ctx context.Context, reqs []ipam.Request) {
	var held []Held
	for _, req := range reqs {
		s, err := e.poolSelector.settings(ipam.Request{Conf: req.Conf})
		for _, a := range req.Held {
			name := s.pool
			for _, w := range s.wants {
				if w.network.Contains(a) {
					name = w.pool
				}
			}
			if err == nil && name != "" {
				held = append(held, Held{name, a, req.Key()})
				continue
			}
			held = append(held, e.state.poolsOf(a, req.Key())...)
		}
	}
	e.state.restore(held)
	e.affinity.flushUnheld(ctx)
}
