// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"encoding/json"
	"strings"
	"sync"
	"time"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/notify"
)

const (
	// tellPause gathers what is to be told of policies; each node that comes later in the cluster's order waits so much longer,
	// and finds it told.
	tellPause, tellTurn = 200 * time.Millisecond, 10 * time.Second
	// tellers are how many nodes tell at all.
	tellers = 3
	// understood is the condition that says whether weft understands all of a policy.
	understood = "weft.dev/Understood"
	// mostFaults bounds a condition's message, in bytes.
	mostFaults = 4096
)

// policyTeller tells people on the API server what of a policy is not understood: in a condition where its kind has some, else
// by an event.
type policyTeller struct {
	a    *agent
	news notify.Chan

	mu   sync.Mutex
	told map[model.PolicyKey]string
}

func newPolicyTeller(a *agent) *policyTeller {
	return &policyTeller{a: a, news: notify.New(), told: map[model.PolicyKey]string{}}
}

// Faults notes what is to be told.
func (t *policyTeller) Faults(key model.PolicyKey, faults []string) {
	text := strings.Join(faults, "; ")
	t.mu.Lock()
	t.told[key] = text[:min(len(text), mostFaults)]
	t.mu.Unlock()
	t.news.Notify()
}

// run tells until ctx ends.
func (t *policyTeller) run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-t.news:
		}
		rank := t.a.rank()
		select {
		case <-ctx.Done():
			return nil
		case <-t.a.cfg.After(tellPause + time.Duration(rank)*tellTurn):
		}
		t.mu.Lock()
		all := t.told
		t.told = map[model.PolicyKey]string{}
		t.mu.Unlock()
		for key, faults := range all {
			if rank >= tellers {
				continue
			}
			if err := t.tell(ctx, key, faults, rank == 0); err != nil && ctx.Err() == nil {
				t.a.cfg.Log.Warn("nobody is told of a policy that is not understood", "policy", key.String(), "err", err)
			}
		}
	}
}

func (t *policyTeller) tell(ctx context.Context, key model.PolicyKey, faults string, first bool) error {
	if key.Kind == model.KindClusterNetworkPolicy {
		return t.condition(ctx, key, faults)
	}
	if faults == "" || !first {
		return nil
	}
	kind := store.NetworkPolicies()
	if key.Kind == model.KindMultiNetworkPolicy {
		kind = store.MultiNetworkPolicies()
	}
	return t.a.kube.EventOn(ctx, kind, model.PodRef{Namespace: key.Namespace, Name: key.Name}, model.Event{
		Warning: true, Reason: "NotUnderstood", Message: faults,
	})
}

// condition writes the condition of a policy when it says something else.
func (t *policyTeller) condition(ctx context.Context, key model.PolicyKey, faults string) error {
	kind := store.ClusterNetworkPolicies()
	o, err := t.a.kube.Objects().Get(ctx, kind, kind.Key("", key.Name))
	if err != nil {
		return err
	}
	next, changed, err := withCondition(o, faults, t.a.cfg.Now())
	if err != nil || !changed {
		return err
	}
	_, err = t.a.kube.Objects().CompareAndSwapStatus(ctx, kind, o.Version, next)
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
