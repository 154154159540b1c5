// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"context"

	"github.com/weft-net/weft/internal/kernel/nflog"
	"github.com/weft-net/weft/internal/plan/policy"
)

// logDenied starts logging packets that are denied in a pod's namespace. After an error it is retried when the place is
// checked again. The caller has the kernel lock of the pods' tables.
func (pt *podTables) logDenied(p policy.EnforcementPoint, at *place) {
	if pt.cfg.LogGroup == 0 {
		return
	}
	if at.stopLog != nil {
		select {
		case <-at.logDone:
			at.stopLog()
		default:
			return
		}
	}
	if pt.isLogged(p, at) {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	l, err := nflog.Listen(ctx, at.ns, pt.cfg.LogGroup, pt.denials.rateLimited(ctx, p))
	if err != nil {
		cancel()
		pt.logDeniedFailed(p, at, err)
		return
	}
	pt.desired.mu.Lock()
	defer pt.desired.mu.Unlock()
	at.stopLog, at.logDone, at.denialsUnlogged = func() { cancel(); l.Close() }, l.Done(), false
}

// logDeniedFailed logs once that denied packets of a pod cannot be logged.
func (pt *podTables) logDeniedFailed(p policy.EnforcementPoint, at *place, err error) {
	pt.desired.mu.Lock()
	said := at.denialsUnlogged
	at.stopLog, at.denialsUnlogged = nil, true
	pt.desired.mu.Unlock()
	if !said {
		pt.log.Warn("denied packets of a pod cannot be logged", "pod", p.Pod.String(), "err", err)
	}
}

// isLogged reports whether another place of the pod listens for the whole namespace.
func (pt *podTables) isLogged(p policy.EnforcementPoint, at *place) bool {
	pt.desired.mu.Lock()
	defer pt.desired.mu.Unlock()
	for q, o := range pt.places {
		if q != p && q.Pod == p.Pod && o.id == at.id && o.stopLog != nil {
			return true
		}
	}
	return false
}
