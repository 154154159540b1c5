// SPDX-License-Identifier: Apache-2.0

// Package policystatus reports on the API server which parts of a network policy weft does not support: in a condition
// of a ClusterNetworkPolicy, and in an event for policies whose kind has no conditions.
//
// All nodes find the same unsupported parts. They report in the order of their rank, so that the first node writes and
// the others find it written.
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
	// reportPause batches reports; each node waits reportTurn longer than the node of the next lower rank, and finds the
	// report written.
	reportPause, reportTurn = 200 * time.Millisecond, 10 * time.Second
	// reporters limits how many nodes report at all.
	reporters  = 3
	understood = model.ConditionUnderstood
	// maxMessage limits a condition's message, in bytes.
	maxMessage = 4096
)

// Events creates events on the API server.
type Events interface {
	EventOn(ctx context.Context, kind store.Kind, object model.PodRef, e model.Event) error
}

// Config configures a Reporter.
type Config struct {
	Objects store.Objects
	Events  Events
	// Rank returns how many nodes come before this one.
	Rank  func() int
	Log   *slog.Logger
	Now   func() time.Time
	After func(time.Duration) <-chan time.Time
}

// Reporter reports the unsupported parts of policies.
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

// Unsupported records the unsupported parts of a policy for Run to report; none means that it is supported.
func (r *Reporter) Unsupported(key model.PolicyKey, parts []string) {
	text := strings.Join(parts, "; ")
	r.mu.Lock()
	r.pending[key] = text[:min(len(text), maxMessage)]
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
		for key, unsupported := range all {
			if rank >= reporters {
				continue
			}
			if err := r.report(ctx, key, unsupported, rank == 0); err != nil && ctx.Err() == nil {
				r.cfg.Log.Warn("agent could not report the unsupported parts of a policy", "policy", key.String(), "err", err)
			}
		}
	}
}

func (r *Reporter) report(ctx context.Context, key model.PolicyKey, unsupported string, first bool) error {
	if key.Kind == model.KindClusterNetworkPolicy {
		return r.condition(ctx, key, unsupported)
	}
	if unsupported == "" || !first {
		return nil
	}
	kind := store.NetworkPolicies()
	if key.Kind == model.KindMultiNetworkPolicy {
		kind = store.MultiNetworkPolicies()
	}
	return r.cfg.Events.EventOn(ctx, kind, model.PodRef{Namespace: key.Namespace, Name: key.Name}, model.Event{
		Warning: true, Reason: "UnsupportedPolicy", Message: unsupported,
	})
}

// condition writes the condition of a policy if it differs.
func (r *Reporter) condition(ctx context.Context, key model.PolicyKey, unsupported string) error {
	kind := store.ClusterNetworkPolicies()
	o, err := r.cfg.Objects.Get(ctx, kind, kind.Key("", key.Name))
	if err != nil {
		return err
	}
	next, changed, err := withCondition(o, unsupported, r.cfg.Now())
	if err != nil || !changed {
		return err
	}
	_, err = r.cfg.Objects.CompareAndSwapStatus(ctx, kind, o.Version, next)
	return err
}

// withCondition returns the object with the condition. A supported policy gets it only if it had the condition before.
func withCondition(o store.Object, unsupported string, now time.Time) (store.Object, bool, error) {
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
	want := map[string]any{"type": understood, "status": "False", "reason": "UnsupportedPolicy", "message": unsupported}
	if unsupported == "" {
		want["status"], want["reason"], want["message"] = "True", "Understood", "the policy is enforced completely"
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
	if unsupported == "" && !found {
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
