// SPDX-License-Identifier: Apache-2.0

package blocks

import (
	"context"

	"github.com/weft-net/weft/internal/ipam"
)

// Restore tells the engine which addresses recorded attachments have: before it is asked for any.
func (e *Engine) Restore(ctx context.Context, asks []ipam.Ask) {
	var held []Held
	for _, ask := range asks {
		s, err := e.chooser.settings(ipam.Ask{Conf: ask.Conf})
		for _, a := range ask.Held {
			name := s.pool
			for _, w := range s.wants {
				if w.network.Contains(a) {
					name = w.pool
				}
			}
			if err == nil && name != "" {
				held = append(held, Held{name, a, ask.Key()})
				continue
			}
			held = append(held, e.mem.home(a, ask.Key())...)
		}
	}
	e.mem.restore(held)
	e.affinity.rinseAll(ctx)
}
