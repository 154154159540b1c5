// SPDX-License-Identifier: Apache-2.0

package calico

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/weft-net/weft/internal/cluster/store"
)

// policyKinds returns Calico's own kinds of policies, and the objects that they use. weft does not enforce them.
func policyKinds() []store.Kind {
	var all []store.Kind
	for _, g := range []struct{ name, version string }{{"crd.projectcalico.org", "v1"}, {"projectcalico.org", "v3"}} {
		for _, kind := range []string{
			"GlobalNetworkPolicy", "NetworkPolicy", "GlobalNetworkSet", "NetworkSet", "HostEndpoint", "Tier",
			"StagedGlobalNetworkPolicy", "StagedNetworkPolicy", "StagedKubernetesNetworkPolicy",
		} {
			resource := strings.ToLower(kind) + "s"
			if base, is := strings.CutSuffix(resource, "ys"); is {
				resource = base + "ies"
			}
			namespaced := kind == "NetworkPolicy" || kind == "NetworkSet" || kind == "StagedNetworkPolicy" ||
				kind == "StagedKubernetesNetworkPolicy"
			all = append(all, store.Kind{
				Group: g.name, Version: g.version, Kind: kind, Resource: resource, Namespaced: namespaced,
			})
		}
	}
	return all
}

// Policies returns the names of Calico's own policies, sets, tiers and host endpoints, "KIND NAMESPACE/NAME" each,
// sorted. Those that Calico derives from Kubernetes' policies, its own tiers, and host endpoints of its controllers are
// left out. Objects of one name in both API groups are the same.
func Policies(ctx context.Context, objects store.Objects) ([]string, error) {
	var all []string
	for _, kind := range policyKinds() {
		found, err := objects.List(ctx, kind)
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return nil, fmt.Errorf("%s of %s: %w", kind.Resource, kind.Group, err)
		}
		for _, o := range found {
			if userCreated(o) {
				key := o.Key
				key.Name = strings.TrimPrefix(key.Name, "default.") // the tier's name, which only one of the groups says
				all = append(all, key.String())
			}
		}
	}
	slices.Sort(all)
	return slices.Compact(all), nil
}

// userCreated reports whether a user created the object, and not Calico itself.
func userCreated(o store.Object) bool {
	var head struct {
		Metadata struct {
			Labels map[string]string `json:"labels"`
		} `json:"metadata"`
	}
	name := o.Key.Name
	switch o.Key.Kind {
	case "Tier":
		return !slices.Contains([]string{
			"default", "adminnetworkpolicy", "baselineadminnetworkpolicy", "kube-admin", "kube-baseline",
		}, name)
	case "HostEndpoint":
		return json.Unmarshal(o.Raw, &head) != nil ||
			head.Metadata.Labels["projectcalico.org/created-by"] != "calico-kube-controllers"
	default: // what Calico makes of Kubernetes' own policies
		for _, prefix := range []string{"knp.", "kanp.", "kbanp.", "kcnp."} {
			if strings.HasPrefix(name, prefix) {
				return false
			}
		}
		return true
	}
}

// PoliciesFile is the file in an agent's state directory with the cluster's Calico policies, as a JSON list of strings.
// The agent creates it after its first check.
const PoliciesFile = "calico-policies.json"

// Summary returns the number of policies, and the names of the first few.
func Summary(policies []string) string {
	const few = 5
	text := strings.Join(policies[:min(few, len(policies))], ", ")
	if more := len(policies) - few; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return fmt.Sprintf("%d (%s)", len(policies), text)
}
