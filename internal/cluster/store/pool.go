// SPDX-License-Identifier: Apache-2.0

package store

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/weft-net/weft/api/v1alpha1"
	"github.com/weft-net/weft/internal/model"
)

// lifetime is the creation and the deletion time of an object.
type lifetime struct {
	CreationTimestamp time.Time         `json:"creationTimestamp"`
	DeletionTimestamp time.Time         `json:"deletionTimestamp"`
	Annotations       map[string]string `json:"annotations"`
}

// Since is the annotation of a mirrored pool with the creation time of the original.
const Since = Group + "/since"

// created returns the earlier of both creation times in Unix seconds, 0 if unknown.
func (l lifetime) created() int64 {
	created := l.CreationTimestamp
	if since, err := time.Parse(time.RFC3339, l.Annotations[Since]); err == nil &&
		(created.IsZero() || since.Before(created)) {
		created = since
	}
	if created.IsZero() {
		return 0
	}
	return created.Unix()
}

// ofCluster adds the fields of a pool of the cluster's network. Selectors are not parsed here: an invalid one disables
// allocation, and allocated addresses stay reachable.
func (o Object) ofCluster(pool *model.AddressPool, s v1alpha1.AddressPoolSpec) error {
	pool.AssignmentMode = model.AssignmentMode(s.AssignmentMode)
	pool.NodeSelector, pool.NamespaceSelector = s.NodeSelector, s.NamespaceSelector
	pool.Disabled, pool.NATOutgoing, pool.MaxBlocks = s.Disabled, s.NATOutgoing, int(s.MaxBlocksPerNode)
	pool.DisableBGPExport = s.DisableBGPExport
	if s.MaxBlocksPerNode < 0 {
		return o.errorf("write how many, or 0 for no bound", "spec.maxBlocksPerNode %d is negative", s.MaxBlocksPerNode)
	}
	if err := oneOf(o, "spec.assignmentMode", pool.AssignmentMode, "", model.AssignAutomatic,
		model.AssignManual); err != nil {
		return err
	}
	for i, u := range s.AllowedUses {
		use := model.AddressUse(u)
		if err := oneOf(o, fmt.Sprintf("spec.allowedUses[%d]", i), use, model.UseWorkload, model.UseTunnel,
			model.UseLoadBalancer); err != nil {
			return err
		}
		pool.AllowedUses = append(pool.AllowedUses, use)
	}
	if s.Encapsulation == nil {
		return nil
	}
	pool.Encapsulation = model.Encapsulation{
		Kind: model.EncapsulationKind(s.Encapsulation.Kind), Mode: model.EncapsulationMode(s.Encapsulation.Mode),
	}
	if err := oneOf(o, "spec.encapsulation.kind", pool.Encapsulation.Kind, "", model.EncapsulationNone,
		model.EncapsulationVXLAN, model.EncapsulationIPIP); err != nil {
		return err
	}
	return oneOf(o, "spec.encapsulation.when", pool.Encapsulation.Mode, "", model.EncapsulateAlways,
		model.EncapsulateCrossSubnet)
}

// oneOf returns an error if the value is none of the valid ones.
func oneOf[T ~string](o Object, field string, word T, words ...T) error {
	if slices.Contains(words, word) {
		return nil
	}
	hint := "write "
	words = slices.DeleteFunc(words, func(w T) bool { return w == "" })
	for i, w := range words {
		switch i {
		case 0:
		case len(words) - 1:
			hint += " or "
		default:
			hint += ", "
		}
		hint += string(w)
	}
	return o.errorf(hint, "%s %q is not known", field, word)
}

// clusterSpecOf returns the fields that only a pool of the cluster's network has.
func clusterSpecOf(p model.AddressPool) v1alpha1.AddressPoolSpec {
	s := v1alpha1.AddressPoolSpec{
		AssignmentMode: string(p.AssignmentMode), NodeSelector: p.NodeSelector, NamespaceSelector: p.NamespaceSelector,
		Disabled: p.Disabled, NATOutgoing: p.NATOutgoing, DisableBGPExport: p.DisableBGPExport,
	}
	for _, u := range p.AllowedUses {
		s.AllowedUses = append(s.AllowedUses, string(u))
	}
	if p.Encapsulation != (model.Encapsulation{}) {
		s.Encapsulation = &v1alpha1.Encapsulation{Kind: string(p.Encapsulation.Kind), Mode: string(p.Encapsulation.Mode)}
	}
	return s
}

// AddressReservation returns the object as excluded ranges, each with its purpose and the reservation's key.
func (o Object) AddressReservation() ([]model.ExcludedRange, error) {
	var r struct {
		Spec v1alpha1.AddressReservationSpec `json:"spec"`
	}
	if err := o.decode(&r); err != nil {
		return nil, err
	}
	out := make([]model.ExcludedRange, 0, len(r.Spec.Addresses))
	for i, text := range r.Spec.Addresses {
		field := fmt.Sprintf("spec.addresses[%d]", i)
		var cidr netip.Prefix
		if a, err := netip.ParseAddr(text); err == nil && a.Zone() == "" {
			cidr = netip.PrefixFrom(a.Unmap(), a.Unmap().BitLen())
		} else if cidr, err = o.prefix(field, text); err != nil {
			return nil, err
		}
		out = append(out, model.ExcludedRange{CIDR: cidr, Reason: r.Spec.Reason, Source: o.Key.String()})
	}
	return out, nil
}

// Conditions returns the object's conditions, by type.
func (o Object) Conditions() map[string]model.Condition {
	var s struct {
		Status struct{ Conditions []v1alpha1.Condition }
	}
	out := map[string]model.Condition{}
	if json.Unmarshal(o.Raw, &s) != nil {
		return out
	}
	for _, c := range s.Status.Conditions {
		out[c.Type] = model.Condition{Type: c.Type, True: c.Status == "True", Reason: c.Reason, Message: c.Message}
	}
	return out
}

// Observed reports whether a condition of the object's status is about its current generation; true if objects have no
// generation.
func (o Object) Observed(conditionType string) bool {
	var s struct {
		Metadata struct{ Generation int64 }
		Status   struct{ Conditions []v1alpha1.Condition }
	}
	if json.Unmarshal(o.Raw, &s) != nil {
		return false
	}
	for _, c := range s.Status.Conditions {
		if c.Type == conditionType {
			return c.ObservedGeneration == s.Metadata.Generation
		}
	}
	return false
}

// WithWanted is the edit that writes the nodes that found the pool exhausted into its status.
func WithWanted(nodes []string) Edit {
	return func(fields map[string]any) error {
		status, err := child(fields, "status")
		if err != nil {
			return err
		}
		if delete(status, "wanted"); len(nodes) > 0 {
			list := make([]any, len(nodes))
			for i, n := range nodes {
				list[i] = n
			}
			status["wanted"] = list
		}
		if len(status) == 0 {
			delete(fields, "status")
		}
		return nil
	}
}

// WithCondition is the edit that writes a condition into an object's status. lastTransitionTime changes only with its
// status.
func WithCondition(c model.Condition, now time.Time) Edit {
	return func(fields map[string]any) error {
		status, err := child(fields, "status")
		if err != nil {
			return err
		}
		list, _ := status["conditions"].([]any)
		next := map[string]any{
			"type": c.Type, "status": "False", "reason": c.Reason, "message": c.Message,
			"lastTransitionTime": now.UTC().Format(time.RFC3339),
		}
		if c.True {
			next["status"] = "True"
		}
		if meta, ok := fields["metadata"].(map[string]any); ok && meta["generation"] != nil {
			next["observedGeneration"] = meta["generation"]
		}
		out := []any{}
		for _, x := range list {
			have, _ := x.(map[string]any)
			if have["type"] != c.Type {
				out = append(out, x)
				continue
			}
			if have["status"] == next["status"] && have["lastTransitionTime"] != nil {
				next["lastTransitionTime"] = have["lastTransitionTime"]
			}
		}
		status["conditions"] = append(out, next)
		return nil
	}
}
