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
	"github.com/weft-net/weft/internal/model"
)

// Unenforced returns what of Calico's own policies is not enforced, or only in part, "KIND NAMESPACE/NAME (reason)" each,
// sorted: policies, tiers, network sets, host endpoints and configurations of which a part is invalid, not supported, or
// without effect, and settings of Felix that only its DaemonSet has. What Calico derives from Kubernetes' policies is left
// out, and staged policies, which Calico does not enforce either. Objects of one name in both API groups are the same.
func Unenforced(ctx context.Context, objects store.Objects) ([]string, error) {
	all, err := environment(ctx, objects)
	if err != nil {
		return nil, err
	}
	for _, kind := range slices.Concat(PolicyKinds()...) {
		found, err := objects.List(ctx, kind)
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return nil, fmt.Errorf("%s of %s: %w", kind.Resource, kind.Group, err)
		}
		for _, o := range found {
			why := unenforced(o)
			if why == "" || Derived(o.Key) {
				continue
			}
			key := o.Key
			if IsPolicy(key) {
				key.Name = PolicyKey(key).Name
			}
			all = append(all, key.String()+" ("+why+")")
		}
	}
	slices.Sort(all)
	return slices.Compact(all), nil
}

// unenforced returns what of an object is not enforced; empty: all is.
func unenforced(o store.Object) string {
	var err error
	switch {
	case IsTier(o.Key):
		_, err = Tier(o)
	case IsNetworkSet(o.Key):
		_, err = NetworkSet(o)
	case IsHostEndpoint(o.Key):
		_, err = HostEndpoint(o)
	case IsFelixConfiguration(o.Key):
		if _, err = FelixConfiguration(o); err == nil {
			err = Ignored(o)
		}
	case IsControllersConfiguration(o.Key):
		_, err = HostEndpointController(o)
	default:
		var p model.Policy
		if p, err = Policy(o); err == nil {
			return strings.Join(p.Errors, "; ")
		}
	}
	if err == nil {
		return ""
	}
	return Reason(o, err)
}

// Reason returns an error of one of this package's functions about an object in one line, without the object's name.
func Reason(o store.Object, err error) string {
	of := fmt.Sprintf("%s (%s): ", o.Key, o.Key.Group)
	return strings.ReplaceAll(strings.ReplaceAll(err.Error(), of, ""), "\n", "; ")
}

// metadataAnnotation has a user's labels and annotations in the objects that Calico's API server and calicoctl store.
const metadataAnnotation = "projectcalico.org/metadata"

// labelsOf returns the labels of an object of Calico's, which may be in an annotation.
func labelsOf(o store.Object) (model.Labels, error) {
	type labeled struct {
		Labels map[string]string `json:"labels"`
	}
	var in struct {
		Metadata struct {
			labeled
			Annotations map[string]string `json:"annotations"`
		} `json:"metadata"`
	}
	if err := decode(o, &in); err != nil {
		return nil, err
	}
	var more labeled
	if text := in.Metadata.Annotations[metadataAnnotation]; text != "" {
		if err := json.Unmarshal([]byte(text), &more); err != nil {
			return nil, invalid(o, "write it as calicoctl does", "annotation %s: %w", metadataAnnotation, err)
		}
	}
	out := model.Labels{}
	for _, labels := range []map[string]string{in.Metadata.Labels, more.Labels} {
		for k, v := range labels {
			out[k] = v
		}
	}
	return out, nil
}

// PoliciesFile is the file in an agent's state directory with what of the cluster's Calico policies is not enforced, as a
// JSON list of strings. The agent creates it after its first check.
const PoliciesFile = "calico-policies.json"

// Summary returns the number of objects, and the names of the first few.
func Summary(policies []string) string {
	const few = 5
	text := strings.Join(policies[:min(few, len(policies))], ", ")
	if more := len(policies) - few; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return fmt.Sprintf("%d (%s)", len(policies), text)
}
