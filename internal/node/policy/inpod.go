// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"context"
	"errors"
	"time"

	"github.com/weft-net/weft/internal/kernel/watch"
	"github.com/weft-net/weft/internal/plan/policy"
)

// errExternalChange is the error of a place whose table another program has changed.
var errExternalChange = errors.New("another program has changed the table")

// repairPause is the pause between two repairs in a pod: root in the pod may change the table endlessly.
const repairPause = 250 * time.Millisecond

// watchTable watches the table in a pod's namespace, so that it is repaired after an external change: root in the pod
// may change it. The caller has the kernel lock of the pods' tables.
func (pt *podTables) watchTable(p policy.EnforcementPoint, at *place) {
	port, err := at.conn.Port()
	if err != nil {
		pt.log.Warn("tables of a pod cannot be watched, and are checked periodically only", "pod", p.Pod.String(), "err", err)
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	externalChanges, err := watch.ExternalChanges(ctx, at.ns, watch.Owner{Port: port, Table: p.Table()})
	if err != nil {
		cancel()
		pt.log.Warn("tables of a pod cannot be watched, and are checked periodically only", "pod", p.Pod.String(), "err", err)
		return
	}
	pt.desired.mu.Lock()
	at.stopWatch = cancel
	pt.desired.mu.Unlock()
	go func() {
		for range externalChanges { // until the place is closed
			pt.desired.mu.Lock()
			if pt.places[p] == at && at.conn != nil {
				at.externalChanges++
				if at.broken == nil {
					at.broken = errExternalChange
					pt.desired.stats.ExternalChanges++
				}
			}
			pt.desired.mu.Unlock()
			pt.desired.due.Notify()
			select {
			case <-ctx.Done():
			case <-pt.cfg.After(repairPause):
			}
		}
	}()
}
