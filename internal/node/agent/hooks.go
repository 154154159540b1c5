// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/cluster/store/kube"
	"github.com/weft-net/weft/internal/endpoint/attach"
	"github.com/weft-net/weft/internal/model"
)

// hold locks a sandbox.
func (a *agent) hold(ctx context.Context, container string) (func(), error) {
	return a.attachments.attacher.LockContainer(ctx, container)
}

// answering is called when calls are served.
func (a *agent) answering() {
	a.telemetry.readiness.Set(partCalls, nil)
	close(a.ready)
	if a.cfg.Ready != nil {
		a.cfg.Ready()
	}
}

// called is called after each call.
func (a *agent) called(verb string, err error, took time.Duration) {
	var f *model.Error
	code := uint(0)
	switch {
	case errors.As(err, &f):
		code = uint(f.Code)
	case err != nil:
		code = uint(model.CodeInternal)
	}
	a.telemetry.metrics.Call(verb, code, took)
	a.attachments.advertised.Changed()
	a.overlay.CheckMarked()
	if err == nil && (verb == "ADD" || verb == "DEL") && a.overlay.Bridged() {
		a.overlay.Changed()
	}
}

// vmMoved is called when a VM's attachment has changed.
func (a *agent) vmMoved(key model.AttachmentKey) {
	a.attachments.guests.Changed(key)
	a.attachments.advertised.Changed()
	a.overlay.CheckMarked()
	if a.attachments.mover != nil {
		a.attachments.mover.Moved(key)
	}
}

// podEvent returns a function that creates an event on a pod, nil without an API server.
func podEvent(api *kube.Store, log *slog.Logger) func(model.PodRef, model.Event) {
	if api == nil {
		return nil
	}
	return func(pod model.PodRef, e model.Event) {
		if err := api.Event(context.Background(), pod, e); err != nil {
			log.Warn("event on a pod could not be created", "pod", pod.String(), "reason", e.Reason, "err", err)
		}
	}
}

// nodeEvent returns a function that creates an event on this node's Node, nil without an API server.
func (a *agent) nodeEvent() func(context.Context, model.Event) error {
	api, name := a.data.kube, a.cfg.Node
	if api == nil {
		return nil
	}
	return func(ctx context.Context, e model.Event) error {
		// kubectl describe node looks for events by the node's name instead of its UID, as the kubelet writes them.
		node, err := store.NewObject(fmt.Appendf(nil,
			`{"apiVersion":"v1","kind":"Node","metadata":{"name":%q,"uid":%q}}`, name, name))
		if err != nil {
			return err
		}
		return api.EventOn(ctx, store.Nodes(), node, e)
	}
}

// ofNode returns this node's labels and podCIDRs for attach.
func (a *agent) ofNode() attach.Node {
	return attach.Node{PodCIDRs: a.self.pods.PodCIDRs(), MTU: a.overlay.MTU()}
}
