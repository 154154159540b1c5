// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"context"

	"github.com/weft-net/weft/internal/plan/policy"
)

// quarantineTap sets a macvtap down while its policies could not be written, and up again when they are. The caller
// has the kernel lock of the pods' tables.
func (pt *podTables) quarantineTap(ctx context.Context, p policy.EnforcementPoint, at *place, closed bool) {
	pt.desired.mu.Lock()
	if p.Tap == "" || at.conn == nil || !closed && at.tapOpen {
		pt.desired.mu.Unlock()
		return
	}
	at.quarantined = closed
	var names []string
	for q, o := range pt.places { // the pod may have more than one
		if q.Tap != "" && o.quarantined && o.id == at.id {
			names = append(names, q.Tap)
		}
	}
	conn := at.conn
	pt.desired.mu.Unlock()
	down, up, err := conn.Quarantine(context.WithoutCancel(ctx), names)
	switch {
	case err != nil:
		pt.log.Error("macvtap could not be set down or up", "pod", p.Pod.String(), "interface", p.Tap, "err", err)
	case len(down) > 0:
		pt.log.Error("macvtap is down: policies select the pod, and could not be written there", "pod", p.Pod.String(),
			"interface", p.Tap, "hint", untappedHint)
	case len(up) > 0:
		pt.log.Info("macvtap is up again, with its policies", "pod", p.Pod.String(), "interface", p.Tap)
	}
	pt.desired.mu.Lock()
	defer pt.desired.mu.Unlock()
	at.tapOpen = err == nil && !closed
}
