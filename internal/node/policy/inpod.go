// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"context"
	"errors"
	"time"

	"github.com/weft-net/weft/internal/kernel/watch"
	"github.com/weft-net/weft/internal/plan/policy"
)

// errMeddled is of a place whose table somebody else has touched.
var errMeddled = errors.New("somebody else has changed the table")

// meddlePause is between two looks at what others do in a pod: who is root there may do it without end, and each time a
// table is written.
const meddlePause = 250 * time.Millisecond

// look has the table in a pod's namespace be put right as soon as somebody else touches it: who is root in the pod may.
// It is the turn of who writes in pods.
func (pt *podTables) look(p policy.Place, at *place) {
	port, err := at.conn.Port()
	if err != nil {
		pt.log.Warn("the policies of a pod are looked at now and then only", "pod", p.Pod.String(), "err", err)
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	meddled, err := watch.Meddled(ctx, at.ns, watch.Own{Port: port, Table: p.Table()})
	if err != nil {
		cancel()
		pt.log.Warn("the policies of a pod are looked at now and then only", "pod", p.Pod.String(), "err", err)
		return
	}
	pt.desired.mu.Lock()
	at.blind = cancel
	pt.desired.mu.Unlock()
	go func() {
		for range meddled { // until the place is closed
			pt.desired.mu.Lock()
			if pt.places[p] == at && at.conn != nil {
				at.meddled++
				if at.broken == nil {
					at.broken = errMeddled
					pt.desired.stats.Meddled++
				}
			}
			pt.desired.mu.Unlock()
			pt.desired.due.Notify()
			select {
			case <-ctx.Done():
			case <-pt.cfg.After(meddlePause):
			}
		}
	}()
}
