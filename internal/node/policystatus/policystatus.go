// SPDX-License-Identifier: Apache-2.0

// Package policystatus reports on the API server which parts of a network policy weft does not support: in a condition
// of a ClusterNetworkPolicy, in an event of a policy whose kind has no conditions.
//
// Every node finds the same faults. The nodes take turns, by their rank, so that the first one writes and the others
// find it written.
package policystatus

import (
	"context"
	"encoding/json"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/notify"
)

const (
	// reportPause collects what is to be reported; each node of a higher rank waits so much longer,
	// and finds it reported.
	reportPause, reportTurn = 200 * time.Millisecond, 10 * time.Second
	// reporters are how many nodes report at all.
	reporters = 3
	// understood is the condition that says whether weft understands all of a policy.
	understood = "weft.dev/Understood"
	// mostFaults bounds a condition's message, in bytes.
	mostFaults = 4096
)

// Events creates events on the API server.
type Events interface {
	EventOn(ctx context.Context, kind store.Kind, object model.PodRef, e model.Event) error
}

// Config is a Reporter's.
type Config struct {
	Objects store.Objects
	Events  Events
	// Rank is how many nodes come before this one.
	Rank  func() int
	Log   *slog.Logger
	Now   func() time.Time
	After func(time.Duration) <-chan time.Time
}

// Reporter reports the faults of policies.
type Reporter struct {
	cfg     Config
	changed notify.Chan

	mu      sync.Mutex
	pending map[model.PolicyKey]string // what is to be reported
}

// New returns a Reporter.
func New(cfg Config) *Reporter {
	return &Reporter{cfg: cfg, changed: notify.New(), pending: map[model.PolicyKey]string{}}
}

// Faults notes the faults of a policy, which Run reports; none means that it is supported.
func (r *Reporter) Faults(key model.PolicyKey, faults []string) {
	text := strings.Join(faults, "; ")
	r.mu.Lock()
	r.pending[key] = text[:min(len(text), mostFaults)]
	r.mu.Unlock()
	r.changed.Notify()
}

// Run reports until ctx ends.
func (r *Reporter) Run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-r.changed:
		}
		rank := r.cfg.Rank()
		select {
		case <-ctx.Done():
			return nil
		case <-r.cfg.After(reportPause + time.Duration(rank)*reportTurn):
		}
		r.mu.Lock()
		all := r.pending
		r.pending = map[model.PolicyKey]string{}
		r.mu.Unlock()
		for key, faults := range all {
			if rank >= reporters {
				continue
			}
			if err := r.report(ctx, key, faults, rank == 0); err != nil && ctx.Err() == nil {
				r.cfg.Log.Warn("the fault of a policy is not reported", "policy", key.String(), "err", err)
			}
		}
	}
}

func (r *Reporter) report(ctx context.Context, key model.PolicyKey, faults string, first bool) error {
	if key.Kind == model.KindClusterNetworkPolicy {
		return r.condition(ctx, key, faults)
	}
	if faults == "" || !first {
		return nil
	}
	kind := store.NetworkPolicies()
	if key.Kind == model.KindMultiNetworkPolicy {
		kind = store.MultiNetworkPolicies()
	}
	return r.cfg.Events.EventOn(ctx, kind, model.PodRef{Namespace: key.Namespace, Name: key.Name}, model.Event{
		Warning: true, Reason: "NotUnderstood", Message: faults,
	})
}

// condition writes the condition of a policy when it says something else.
func (r *Reporter) condition(ctx context.Context, key model.PolicyKey, faults string) error {
	kind := store.ClusterNetworkPolicies()
	o, err := r.cfg.Objects.Get(ctx, kind, kind.Key("", key.Name))
	if err != nil {
		return err
	}
	next, changed, err := withCondition(o, faults, r.cfg.Now())
	if err != nil || !changed {
		return err
	}
	_, err = r.cfg.Objects.CompareAndSwapStatus(ctx, kind, o.Version, next)
	return err
}

// withCondition is the object with the condition; one that is understood gets it only where it was not before.
func withCondition(o store.Object, faults string, now time.Time) (store.Object, bool, error) {
	var have struct {
		Metadata struct {
			Generation int64 `json:"generation"`
		} `json:"metadata"`
		Status struct {
			Conditions []map[string]any `json:"conditions"`
		} `json:"status"`
	}
	if err := json.Unmarshal(o.Raw, &have); err != nil {
		return o, false, err
	}
	want := map[string]any{"type": understood, "status": "False", "reason": "NotUnderstood", "message": faults}
	if faults == "" {
		want["status"], want["reason"], want["message"] = "True", "Understood", "all of the policy is obeyed"
	}
	var all []any
	found := false
	for _, c := range have.Status.Conditions {
		if c["type"] != understood {
			all = append(all, c)
			continue
		}
		found = true
		if c["status"] == want["status"] && c["message"] == want["message"] {
			return o, false, nil
		}
	}
	if faults == "" && !found {
		return o, false, nil
	}
	want["lastTransitionTime"], want["observedGeneration"] = now.UTC().Format(time.RFC3339), have.Metadata.Generation
	next, err := o.Edited(func(fields map[string]any) error {
		status, _ := fields["status"].(map[string]any)
		if status == nil {
			status = map[string]any{}
			fields["status"] = status
		}
		status["conditions"] = append(all, want)
		return nil
	})
	return next, err == nil, err
}
