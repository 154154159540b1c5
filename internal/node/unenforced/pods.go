// SPDX-License-Identifier: Apache-2.0

package unenforced

import (
	"context"
	"log/slog"
	"time"

	"github.com/weft-net/weft/internal/endpoint/attach"
	"github.com/weft-net/weft/internal/model"
)

// podPeriod is how often pods are compared with the attachments.
const podPeriod = 30 * time.Second

// PodsConfig configures WatchPods.
type PodsConfig struct {
	// Cluster returns the current snapshot, nil before it is known; Synced is closed when it is complete.
	Cluster func() *model.Cluster
	Synced  <-chan struct{}
	Records interface {
		List() ([]attach.Record, error)
	}
	// Event, which may be nil, creates an event of a pod.
	Event func(ctx context.Context, pod model.PodRef, e model.Event) error
	Log   *slog.Logger
	After func(time.Duration) <-chan time.Time
}

// WatchPods warns of pods of this node that another vendor's network attached without weft: before weft was installed.
// Policies are enforced for them only when they have been started again. Each is reported once.
func WatchPods(ctx context.Context, cfg PodsConfig) error {
	select {
	case <-ctx.Done():
		return nil
	case <-cfg.Synced:
	}
	reported := map[model.PodRef]bool{}
	for {
		pods, err := cfg.unattached()
		if err != nil {
			cfg.Log.Warn("attachments could not be listed", "err", err)
		}
		for _, pod := range pods {
			if !reported[pod] {
				reported[pod] = true
				cfg.report(ctx, pod)
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-cfg.After(podPeriod):
		}
	}
}

func (c PodsConfig) report(ctx context.Context, pod model.PodRef) {
	c.Log.Warn("policies are not enforced for a pod that started before weft; start it again", "pod", pod.String())
	if c.Event == nil {
		return
	}
	err := c.Event(ctx, pod, model.Event{
		Warning: true, Reason: "PolicyNotEnforced",
		Message: "the pod started before weft: network policies are not enforced for it until it is started again",
	})
	if err != nil {
		c.Log.Warn("event about a pod could not be created", "pod", pod.String(), "err", err)
	}
}

// unattached returns the pods that run on this node with a network of their own and have no attachment.
func (c PodsConfig) unattached() ([]model.PodRef, error) {
	// First the pods: an attachment is recorded before its pod runs.
	cluster := c.Cluster()
	if cluster == nil {
		return nil, nil
	}
	records, err := c.Records.List()
	if err != nil {
		return nil, err
	}
	attached := map[[2]string]bool{}
	for _, r := range records {
		if e, ok := r.Endpoint(); ok {
			attached[[2]string{e.Pod.Namespace, e.Pod.Name}] = true
		}
	}
	var out []model.PodRef
	for _, p := range cluster.Pods {
		if p.Node == cluster.Self && !p.HostNetwork && p.Phase == "Running" && !attached[[2]string{p.Namespace, p.Name}] {
			out = append(out, model.PodRef{Namespace: p.Namespace, Name: p.Name, UID: p.UID})
		}
	}
	return out, nil
}
