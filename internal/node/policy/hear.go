// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"context"

	"github.com/weft-net/weft/internal/kernel/nflog"
	"github.com/weft-net/weft/internal/plan/policy"
)

// hear has packets that are denied in a pod's namespace be logged, too. Where it cannot be, it is tried again when the
// place is looked at again. It is the turn of who writes in pods.
func (pt *podTables) hear(p policy.Place, at *place) {
	if pt.cfg.LogGroup == 0 {
		return
	}
	if at.deaf != nil {
		select {
		case <-at.heard:
			at.deaf()
		default:
			return
		}
	}
	if pt.isHeard(p, at) {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	l, err := nflog.Listen(ctx, at.ns, pt.cfg.LogGroup, pt.denials.calmly(ctx, p))
	if err != nil {
		cancel()
		pt.unheard(p, at, err)
		return
	}
	pt.desired.mu.Lock()
	defer pt.desired.mu.Unlock()
	at.deaf, at.heard, at.unheard = func() { cancel(); l.Close() }, l.Done(), false
}

// unheard says once that denied packets of a pod are not logged.
func (pt *podTables) unheard(p policy.Place, at *place, err error) {
	pt.desired.mu.Lock()
	said := at.unheard
	at.deaf, at.unheard = nil, true
	pt.desired.mu.Unlock()
	if !said {
		pt.log.Warn("denied packets of a pod are not logged", "pod", p.Pod.String(), "err", err)
	}
}

// isHeard reports whether another place of the pod hears the whole namespace.
func (pt *podTables) isHeard(p policy.Place, at *place) bool {
	pt.desired.mu.Lock()
	defer pt.desired.mu.Unlock()
	for q, o := range pt.places {
		if q != p && q.Pod == p.Pod && o.id == at.id && o.deaf != nil {
			return true
		}
	}
	return false
}
