// SPDX-License-Identifier: Apache-2.0

package calico

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/model"
)

// kinds returns a kind in both API groups.
func kinds(kind, resource string, namespaced bool) []store.Kind {
	return []store.Kind{
		{Group: "crd.projectcalico.org", Version: "v1", Kind: kind, Resource: resource, Namespaced: namespaced},
		{Group: "projectcalico.org", Version: "v3", Kind: kind, Resource: resource, Namespaced: namespaced},
	}
}

// NetworkPolicies are Calico's policies of a namespace.
func NetworkPolicies() []store.Kind { return kinds("NetworkPolicy", "networkpolicies", true) }

// GlobalNetworkPolicies are its policies of the whole cluster.
func GlobalNetworkPolicies() []store.Kind {
	return kinds("GlobalNetworkPolicy", "globalnetworkpolicies", false)
}

// Tiers are those that policies are in.
func Tiers() []store.Kind { return kinds("Tier", "tiers", false) }

// NetworkSets and GlobalNetworkSets are prefixes that policies select by labels.
func NetworkSets() []store.Kind { return kinds("NetworkSet", "networksets", true) }

// GlobalNetworkSets are those without a namespace.
func GlobalNetworkSets() []store.Kind { return kinds("GlobalNetworkSet", "globalnetworksets", false) }

// PolicyKinds returns the kinds of each API group that policies need, those of policies first.
func PolicyKinds() [][]store.Kind {
	var out [][]store.Kind
	for i := range Tiers() {
		out = append(out, append([]store.Kind{
			GlobalNetworkPolicies()[i], NetworkPolicies()[i], Tiers()[i], NetworkSets()[i], GlobalNetworkSets()[i],
		}, HostKinds()[i]...))
	}
	return out
}

// IsPolicy reports whether the key is one of Calico's policies that weft enforces. What Calico makes of Kubernetes' own
// policies is none, nor are staged policies.
func IsPolicy(k store.Key) bool {
	return (of(k, NetworkPolicies()) || of(k, GlobalNetworkPolicies())) && !derived(k.Name)
}

// IsTier and IsNetworkSet report whether the key is of that kind.
func IsTier(k store.Key) bool { return of(k, Tiers()) }

// IsNetworkSet reports whether the key is a network set, of a namespace or of the cluster.
func IsNetworkSet(k store.Key) bool { return of(k, NetworkSets()) || of(k, GlobalNetworkSets()) }

func of(k store.Key, kinds []store.Kind) bool {
	for _, kind := range kinds {
		if k.Of(kind) {
			return true
		}
	}
	return false
}

// Derived reports whether Calico has made the object of one of Kubernetes' policies.
func Derived(k store.Key) bool {
	return (of(k, NetworkPolicies()) || of(k, GlobalNetworkPolicies())) && derived(k.Name)
}

// derived reports whether Calico has made a policy of one of Kubernetes'.
func derived(name string) bool {
	for _, prefix := range []string{"knp.", "kanp.", "kbanp.", "kcnp."} {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}

// PolicyKey returns the key of a policy, which is the same in both groups: only one of them has the tier's name before
// the policy's.
func PolicyKey(k store.Key) model.PolicyKey {
	kind := model.KindGlobalNetworkPolicy
	if k.Kind == "NetworkPolicy" {
		kind = model.KindCalicoNetworkPolicy
	}
	return model.PolicyKey{
		Kind: kind, Namespace: k.Namespace, Name: strings.TrimPrefix(k.Name, string(model.TierDefault)+"."),
	}
}

// policySpec is the part of a policy without its rules.
type policySpec struct {
	Tier              string            `json:"tier"`
	Order             *float64          `json:"order"`
	Selector          string            `json:"selector"`
	NamespaceSelector string            `json:"namespaceSelector"`
	AccountSelector   string            `json:"serviceAccountSelector"`
	Types             []string          `json:"types"`
	Ingress           []json.RawMessage `json:"ingress"`
	Egress            []json.RawMessage `json:"egress"`
	ApplyOnForward    bool              `json:"applyOnForward"`
	PreDNAT           bool              `json:"preDNAT"`
	DoNotTrack        bool              `json:"doNotTrack"`
}

// Policy returns the object as the model's policy. What cannot be understood of a rule is in its Errors, and fails closed
// there: a rule that would allow does not match, one that would deny or pass denies everything (Calico ignores the whole
// policy). The error is about a policy of which not even that is known which pods it selects. A policy that only host
// endpoints can have selects no pod.
func Policy(o store.Object) (model.Policy, error) {
	p := model.Policy{PolicyKey: PolicyKey(o.Key)}
	var in struct {
		Spec policySpec `json:"spec"`
	}
	if err := decode(o, &in); err != nil {
		return p, err
	}
	p.Tier, p.Order = model.PolicyTier(in.Spec.Tier), in.Spec.Order
	if p.Tier == "" {
		p.Tier = model.TierDefault
	}
	subject, err := subjectOf(p.PolicyKey, in.Spec)
	if err != nil {
		return p, invalid(o, "compare with Calico's reference of selectors", "%w", err)
	}
	p.Subject = subject
	ingress, egress := directionsOf(o.Key, in.Spec)
	r := ruleReader{namespace: p.Namespace}
	if p.Kind == model.KindGlobalNetworkPolicy {
		p.Host = model.HostScope{
			ApplyOnForward: in.Spec.ApplyOnForward || in.Spec.PreDNAT || in.Spec.DoNotTrack, PreDNAT: in.Spec.PreDNAT,
			DoNotTrack: in.Spec.DoNotTrack,
		}
	}
	switch {
	case p.Host.PreDNAT && p.Host.DoNotTrack:
		r.fail(errors.New("spec.preDNAT and spec.doNotTrack are both set: connections are not tracked, and the destination is not translated"))
	case p.Host.PreDNAT && egress:
		if len(in.Spec.Egress) > 0 {
			r.fail(errors.New("spec.egress is ignored under spec.preDNAT: a destination is translated where packets come in"))
		}
		egress = false
	}
	for i, name := range in.Spec.Types {
		if !strings.EqualFold(name, "Ingress") && !strings.EqualFold(name, "Egress") {
			r.fail(fmt.Errorf("spec.types[%d] %q is neither Ingress nor Egress", i, name))
		}
	}
	if p.Ingress.On = ingress; ingress {
		p.Ingress.Rules = r.rules("spec.ingress", in.Spec.Ingress)
	}
	if p.Egress.On = egress; egress {
		r.egress = true
		p.Egress.Rules = r.rules("spec.egress", in.Spec.Egress)
	}
	p.Errors = r.errors
	return p, nil
}

// directionsOf returns the directions that the policy governs. Of the stored objects without types both are: Calico's API
// server and calicoctl write them out.
func directionsOf(k store.Key, s policySpec) (ingress, egress bool) {
	if len(s.Types) == 0 {
		if k.Group == "crd.projectcalico.org" {
			return true, true
		}
		return len(s.Ingress) > 0 || len(s.Egress) == 0, len(s.Egress) > 0
	}
	for _, name := range s.Types {
		ingress = ingress || strings.EqualFold(name, "Ingress")
		egress = egress || strings.EqualFold(name, "Egress")
	}
	return ingress, egress
}

// subjectOf returns what the policy selects.
func subjectOf(key model.PolicyKey, s policySpec) (model.PodPeer, error) {
	e := &model.EndpointSelector{}
	out := model.PodPeer{Namespace: key.Namespace, Endpoints: e}
	var err error
	if e.Labels, err = model.ParseExpression(s.Selector); err != nil {
		return out, fmt.Errorf("spec.selector: %w", err)
	}
	if s.AccountSelector != "" {
		if e.ServiceAccountLabels, err = expression("spec.serviceAccountSelector", s.AccountSelector); err != nil {
			return out, err
		}
	}
	if key.Kind != model.KindGlobalNetworkPolicy {
		return out, nil
	}
	// With another selector, all() of the first one does not stand for everything, as in Calico: a policy of all pods of
	// some namespaces selects no host endpoints.
	if s.AccountSelector != "" {
		e.AllLabel, e.AllAccountsLabel = model.AccountLabel, model.AccountLabel
	}
	if s.NamespaceSelector != "" {
		e.AllLabel = model.NamespaceLabel
		err = selectNamespaces(e, "spec.namespaceSelector", s.NamespaceSelector)
	}
	return out, err
}

// selectNamespaces sets the selector's part about namespaces.
func selectNamespaces(e *model.EndpointSelector, field, text string) (err error) {
	if e.Global = strings.ReplaceAll(text, " ", "") == "global()"; e.Global {
		return nil
	}
	e.Namespaces, err = expression(field, text)
	return err
}

func expression(field, text string) (*model.Expression, error) {
	e, err := model.ParseExpression(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", field, err)
	}
	return &e, nil
}
