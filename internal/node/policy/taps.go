// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"context"

	"github.com/weft-net/weft/internal/plan/policy"
)

// barTap has a macvtap be down while its policies cannot be written, and up again when they are. It is the turn of who
// writes in pods.
func (pt *podTables) barTap(ctx context.Context, p policy.Place, at *place, closed bool) {
	pt.desired.mu.Lock()
	if p.Tap == "" || at.conn == nil || !closed && at.unbarred {
		pt.desired.mu.Unlock()
		return
	}
	at.barred = closed
	var names []string
	for q, o := range pt.places { // the pod may have several
		if q.Tap != "" && o.barred && o.id == at.id {
			names = append(names, q.Tap)
		}
	}
	conn := at.conn
	pt.desired.mu.Unlock()
	down, up, err := conn.Bar(context.WithoutCancel(ctx), names)
	switch {
	case err != nil:
		pt.log.Error("macvtap cannot be closed, or opened again", "pod", p.Pod.String(), "interface", p.Tap, "err", err)
	case len(down) > 0:
		pt.log.Error("macvtap is closed: policies select the pod, and cannot be written there", "pod", p.Pod.String(),
			"interface", p.Tap, "hint", untapped)
	case len(up) > 0:
		pt.log.Info("macvtap is open again, with its policies", "pod", p.Pod.String(), "interface", p.Tap)
	}
	pt.desired.mu.Lock()
	defer pt.desired.mu.Unlock()
	at.unbarred = err == nil && !closed
}
