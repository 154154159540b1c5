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

// HostEndpoints are interfaces of nodes. weft enforces no policies at them.
func HostEndpoints() []store.Kind { return kinds("HostEndpoint", "hostendpoints", false) }

// hostEndpoint is a host endpoint as policies select it.
type hostEndpoint struct {
	name    string
	labels  model.Labels
	derived bool // Calico's controllers have made it, with a profile that allows everything
}

// Unenforced returns what of Calico's own policies is not enforced, "KIND NAMESPACE/NAME" each, with the reason where it is
// not the kind, sorted: host endpoints that a user has created, policies that only host endpoints can have, those that
// select one, and policies of which a part is invalid or not supported. What Calico derives from Kubernetes' policies is
// left out, and staged policies, which Calico does not enforce either. Objects of one name in both API groups are the
// same.
func Unenforced(ctx context.Context, objects store.Objects) ([]string, error) {
	var all []string
	hosts, err := hostEndpoints(ctx, objects)
	if err != nil {
		return nil, err
	}
	for _, h := range hosts {
		if !h.derived {
			all = append(all, h.name)
		}
	}
	for _, kind := range slices.Concat(NetworkPolicies(), GlobalNetworkPolicies()) {
		found, err := objects.List(ctx, kind)
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return nil, fmt.Errorf("%s of %s: %w", kind.Resource, kind.Group, err)
		}
		for _, o := range found {
			if why := unenforced(o, hosts); IsPolicy(o.Key) && why != "" {
				key := o.Key
				key.Name = PolicyKey(o.Key).Name
				all = append(all, key.String()+" ("+why+")")
			}
		}
	}
	slices.Sort(all)
	return slices.Compact(all), nil
}

// unenforced returns what of a policy is not enforced; empty: all is.
func unenforced(o store.Object, hosts []hostEndpoint) string {
	p, err := Policy(o)
	if err != nil {
		return err.Error()
	}
	var in struct {
		Spec policySpec `json:"spec"`
	}
	if err := decode(o, &in); err != nil {
		return err.Error()
	}
	switch {
	case in.Spec.PreDNAT:
		return "preDNAT is for host endpoints"
	case in.Spec.DoNotTrack:
		return "doNotTrack is for host endpoints"
	case len(p.Errors) > 0:
		return strings.Join(p.Errors, "; ")
	}
	for _, h := range hosts {
		if p.Namespace == "" && p.Subject.Endpoints.Matches(h.labels) {
			return "it also selects " + h.name
		}
	}
	return ""
}

// hostEndpoints returns those of both groups, once each.
func hostEndpoints(ctx context.Context, objects store.Objects) ([]hostEndpoint, error) {
	seen := map[string]bool{}
	var all []hostEndpoint
	for _, kind := range HostEndpoints() {
		found, err := objects.List(ctx, kind)
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return nil, fmt.Errorf("%s of %s: %w", kind.Resource, kind.Group, err)
		}
		for _, o := range found {
			if seen[o.Key.Name] {
				continue
			}
			seen[o.Key.Name] = true
			labels, err := labelsOf(o)
			if err != nil {
				return nil, err
			}
			all = append(all, hostEndpoint{o.Key.String(), labels, labels["projectcalico.org/created-by"] == "calico-kube-controllers"})
		}
	}
	return all, nil
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
