// SPDX-License-Identifier: Apache-2.0

package calico

import (
	"errors"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/model"
)

// Tier returns the object as a tier; nil if it cannot be read. An unknown default action is Deny, and an error.
func Tier(o store.Object) (*model.Tier, error) {
	var in struct {
		Spec struct {
			Order         *float64 `json:"order"`
			DefaultAction string   `json:"defaultAction"`
		} `json:"spec"`
	}
	if err := decode(o, &in); err != nil {
		return nil, err
	}
	out := &model.Tier{Name: model.PolicyTier(o.Key.Name), Order: in.Spec.Order, Pass: in.Spec.DefaultAction == "Pass"}
	if action := in.Spec.DefaultAction; action != "" && action != "Deny" && action != "Pass" {
		return out, invalid(o, "write Pass or Deny; until then it is Deny", "spec.defaultAction %q is not known", action)
	}
	return out, nil
}

// NetworkSet returns the object as a network set. Of one with invalid prefixes it returns the others too, and the error;
// nil of one that cannot be read.
func NetworkSet(o store.Object) (*model.NetworkSet, error) {
	out := &model.NetworkSet{Namespace: o.Key.Namespace, Name: o.Key.Name}
	labels, err := labelsOf(o)
	if err != nil {
		return nil, err
	}
	out.Labels = labels
	var in struct {
		Spec struct {
			Nets []string `json:"nets"`
		} `json:"spec"`
	}
	if err := decode(o, &in); err != nil {
		return nil, err
	}
	var failed error
	for i, text := range in.Spec.Nets {
		one, err := nets("", []string{text})
		if err != nil {
			failed = errors.Join(failed, invalid(o, "write a prefix like 10.0.0.0/8", "spec.nets[%d] %q is no prefix", i, text))
		}
		out.Nets = append(out.Nets, one...)
	}
	out.Incomplete = failed != nil
	return out, failed
}
