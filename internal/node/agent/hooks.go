// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"time"

	"github.com/weft-net/weft/internal/endpoint/attach"
	"github.com/weft-net/weft/internal/model"
)

// hold waits for a sandbox's turn.
func (a *agent) hold(ctx context.Context, container string) (func(), error) {
	return a.attacher.Hold(ctx, container)
}

// admit has policy hold for a machine's interfaces before they are opened.
func (a *agent) admit(ctx context.Context, all ...attach.Guarded) error {
	if a.policy == nil {
		return nil
	}
	return a.policy.Admit(ctx, all...)
}

// answering is called once calls are answered.
func (a *agent) answering() {
	a.readiness.Set(partCalls, nil)
	close(a.ready)
	if a.cfg.Ready != nil {
		a.cfg.Ready()
	}
}

// called is called after each call.
func (a *agent) called(verb string, err error, took time.Duration) {
	var f *model.Fault
	code := uint(0)
	switch {
	case errors.As(err, &f):
		code = uint(f.Code)
	case err != nil:
		code = uint(model.CodeInternal)
	}
	a.metrics.Call(verb, code, took)
	a.advertised.Changed()
	a.overlay.CheckMarked()
	if err == nil && (verb == "ADD" || verb == "DEL") && a.overlay.Bridged() {
		a.overlay.Changed()
	}
}

// machineMoved is called when a machine's attachment has changed.
func (a *agent) machineMoved(key model.AttachmentKey) {
	a.guests.Changed(key)
	a.advertised.Changed()
	a.overlay.CheckMarked()
	if a.mover != nil {
		a.mover.Moved(key)
	}
}

// repaired counts repairs, where metrics are served.
func (a *agent) repaired() func([]string) {
	if a.metrics == nil {
		return nil
	}
	return a.metrics.Repaired
}

// driftEvent writes an event about a pod whose network keeps drifting, where there is an API server.
func (a *agent) driftEvent() func(model.PodRef, model.Event) {
	api := a.data.kube
	if api == nil {
		return nil
	}
	return func(pod model.PodRef, e model.Event) {
		if err := api.Event(context.Background(), pod, e); err != nil {
			a.cfg.Log.Warn("event about drift is not written", "pod", pod.String(), "err", err)
		}
	}
}
