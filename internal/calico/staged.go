// SPDX-License-Identifier: Apache-2.0

package calico

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/model"
)

// The kinds of staged policies.
const (
	stagedNetworkPolicy    = "StagedNetworkPolicy"
	stagedGlobalPolicy     = "StagedGlobalNetworkPolicy"
	stagedKubernetesPolicy = "StagedKubernetesNetworkPolicy"
)

// StagedKinds are policies that are not enforced, in both API groups: they are there to see what they would change.
func StagedKinds() []store.Kind {
	return slices.Concat(
		kinds(stagedNetworkPolicy, "stagednetworkpolicies", true),
		kinds(stagedGlobalPolicy, "stagedglobalnetworkpolicies", false),
		kinds(stagedKubernetesPolicy, "stagedkubernetesnetworkpolicies", true),
	)
}

// IsStaged reports whether the key is of a staged policy.
func IsStaged(k store.Key) bool { return of(k, StagedKinds()) }

// Staged is what would be done if a staged policy were enforced.
type Staged struct {
	// Policy is added, or replaces the one of its name.
	Policy model.Policy
	// Delete: the policy of the name is deleted instead (stagedAction: Delete).
	Delete bool
}

// StagedPolicy returns what a staged policy is about; false for one with stagedAction: Ignore. Set, which is the default, and
// Learn are the same here.
func StagedPolicy(o store.Object) (s Staged, ok bool, err error) {
	var all map[string]json.RawMessage
	var in struct {
		Spec map[string]json.RawMessage `json:"spec"`
	}
	var action string
	err = errors.Join(json.Unmarshal(o.Raw, &all), json.Unmarshal(o.Raw, &in))
	if raw := in.Spec["stagedAction"]; err == nil && raw != nil {
		err = json.Unmarshal(raw, &action)
	}
	if err != nil {
		return s, false, fmt.Errorf("%s: %w", o.Key, err)
	}
	switch action {
	case "", "Set", "Learn":
	case "Delete":
		s.Delete = true
	case "Ignore":
		return s, false, nil
	default:
		return s, false, model.Errorf(model.CodeInvalidConf, "it is one of Set, Delete, Learn and Ignore",
			"%s: spec.stagedAction %q is unknown", o.Key, action)
	}
	version, kind := string(all["apiVersion"]), "NetworkPolicy"
	switch o.Key.Kind {
	case stagedGlobalPolicy:
		kind = "GlobalNetworkPolicy"
	case stagedKubernetesPolicy:
		version = `"networking.k8s.io/v1"`
		delete(in.Spec, "stagedAction") // the kind that it stands for does not have it
		if all["spec"], err = json.Marshal(in.Spec); err != nil {
			return s, false, fmt.Errorf("%s: %w", o.Key, err)
		}
	}
	all["apiVersion"], all["kind"] = json.RawMessage(version), json.RawMessage(`"`+kind+`"`)
	raw, err := json.Marshal(all)
	if err != nil {
		return s, false, fmt.Errorf("%s: %w", o.Key, err)
	}
	enforced, err := store.NewObject(raw)
	if err == nil {
		s.Policy, err = AnyPolicy(enforced)
	}
	if err != nil && !s.Delete {
		return s, false, fmt.Errorf("%s: %w", o.Key, err)
	}
	return s, true, nil
}

// ListStaged returns what the staged policies of the cluster are about.
func ListStaged(ctx context.Context, objects store.Objects) (out []Staged, err error) {
	seen := map[model.PolicyKey]bool{} // objects of one name in both API groups are the same
	for _, kind := range StagedKinds() {
		found, err := objects.List(ctx, kind)
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return nil, fmt.Errorf("%s of %s: %w", kind.Resource, kind.Group, err)
		}
		for _, o := range found {
			s, ok, err := StagedPolicy(o)
			if err != nil {
				return nil, err
			}
			if ok && !seen[s.Policy.PolicyKey] {
				seen[s.Policy.PolicyKey] = true
				out = append(out, s)
			}
		}
	}
	return out, nil
}
