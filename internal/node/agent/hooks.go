// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/weft-net/weft/internal/cluster/store/kube"
	"github.com/weft-net/weft/internal/endpoint/attach"
	"github.com/weft-net/weft/internal/model"
)

// hold waits for a sandbox's turn.
func (a *agent) hold(ctx context.Context, container string) (func(), error) {
	return a.attachments.attacher.Hold(ctx, container)
}

// answering is called once calls are answered.
func (a *agent) answering() {
	a.told.readiness.Set(partCalls, nil)
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
	a.told.metrics.Call(verb, code, took)
	a.attachments.advertised.Changed()
	a.overlay.CheckMarked()
	if err == nil && (verb == "ADD" || verb == "DEL") && a.overlay.Bridged() {
		a.overlay.Changed()
	}
}

// machineMoved is called when a machine's attachment has changed.
func (a *agent) machineMoved(key model.AttachmentKey) {
	a.attachments.guests.Changed(key)
	a.attachments.advertised.Changed()
	a.overlay.CheckMarked()
	if a.attachments.mover != nil {
		a.attachments.mover.Moved(key)
	}
}

// driftEvent writes an event about a pod whose network keeps drifting, where there is an API server.
func driftEvent(api *kube.Store, log *slog.Logger) func(model.PodRef, model.Event) {
	if api == nil {
		return nil
	}
	return func(pod model.PodRef, e model.Event) {
		if err := api.Event(context.Background(), pod, e); err != nil {
			log.Warn("event about drift is not written", "pod", pod.String(), "err", err)
		}
	}
}

// ofNode is what the cluster, or the configuration, says of this node.
func (a *agent) ofNode() attach.Node {
	return attach.Node{PodCIDRs: a.self.pods.PodCIDRs(), MTU: a.overlay.MTU()}
}
