// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"context"
	"slices"

	"github.com/weft-net/weft/internal/model"
)

// bar closes the ports of bridges whose guests policies select while the rules there cannot be written: what stands
// there does not know of these policies, or is nothing at all. The links are down until the rules stand; an agent that
// starts finds those that one before has taken down. It is the turn of who writes the node's tables.
func (e *Enforcer) bar(ctx context.Context) {
	names, due := e.toBar()
	if !due {
		return
	}
	down, up, err := e.cfg.Host.Bar(context.WithoutCancel(ctx), names)
	if err != nil {
		e.log.Error("ports of bridges cannot be closed, or opened again; it is tried again", "ports", names, "err", err)
		return
	}
	if len(down) > 0 {
		e.log.Error("ports of bridges are closed: policies select pods there, and cannot be written", "ports", down)
	}
	if len(up) > 0 {
		e.log.Info("ports of bridges are open again, with their policies", "ports", up)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.unbarred, e.stats.Barred = len(names) == 0, len(names)
}

// toBar are the ports that are to be closed, all others open; false where it is known that there is nothing to do.
func (e *Enforcer) toBar() (names []string, due bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.bridges != nil {
		for _, l := range e.local {
			if l.Point() == model.PointPort && e.index.Selected(l.Key()) && !slices.Contains(names, l.PolicyLink()) {
				names = append(names, l.PolicyLink())
			}
		}
	}
	return names, len(names) > 0 || !e.unbarred && len(e.local) > 0
}
