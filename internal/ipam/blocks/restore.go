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
		s, err := e.confs.Settings(ipam.Request{Conf: req.Conf})
		for _, a := range req.Held {
			name := s.Pool
			for _, w := range s.Wants {
				if w.Network.Contains(a) {
					name = w.Pool
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

// dropForeign schedules the removal of a reservation that another program made for an attachment without a record. The
// reconciler does it after the DEL has returned.
func (e *Engine) dropForeign(req ipam.Request) {
	if len(req.Held) > 0 {
		return
	}
	s, err := e.confs.Settings(ipam.Request{Conf: req.Conf})
	if err != nil {
		return
	}
	e.state.mu.Lock()
	defer e.state.mu.Unlock()
	for _, w := range s.Wants {
		p := e.state.poolLocked(w.Pool)
		p.deleted = append(p.deleted, req.Key())
		e.kick.Notify()
	}
}
