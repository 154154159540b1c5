// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"

	"github.com/weft-net/weft/internal/endpoint/attach"
	"github.com/weft-net/weft/internal/model"
)

// repair keeps the attachments as they were made, until ctx ends.
func (a *agent) repair(ctx context.Context) error {
	return a.attacher.Reconcile(ctx, attach.Reconciling{After: a.cfg.After, Quiet: a.quiet()})
}

// driftEvent writes an event about a pod whose network keeps drifting, where there is an API server.
func (a *agent) driftEvent() func(model.PodRef, model.Event) {
	if a.kube == nil {
		return nil
	}
	return func(pod model.PodRef, e model.Event) {
		if err := a.kube.Event(context.Background(), pod, e); err != nil {
			a.cfg.Log.Warn("event about drift is not written", "pod", pod.String(), "err", err)
		}
	}
}
