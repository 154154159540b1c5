// SPDX-License-Identifier: Apache-2.0

package store

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/weft-net/weft/internal/model"
)

// policyFor is the annotation with the networks of a MultiNetworkPolicy.
const policyFor = "k8s.v1.cni.cncf.io/policy-for"

// networkPolicy is a NetworkPolicy or a MultiNetworkPolicy, which has the same spec. Rules are decoded one by one, so
// that an invalid one does not affect the others.
type networkPolicy struct {
	Metadata metadata `json:"metadata"`
	Spec     struct {
		PodSelector json.RawMessage   `json:"podSelector"`
		PolicyTypes []string          `json:"policyTypes"`
		Ingress     []json.RawMessage `json:"ingress"`
		Egress      []json.RawMessage `json:"egress"`
	} `json:"spec"`
}

// Policy is the object as the model's policy. What cannot be understood of a rule is in its Faults, and fails closed
// there. The error is about a policy of which not even that is known which pods it selects.
func (o Object) Policy() (model.Policy, error) {
	if p, ok := o.value.(model.Policy); ok {
		return p, nil
	}
	key := model.PolicyKey{Kind: model.PolicyKind(o.Key.Kind), Namespace: o.Key.Namespace, Name: o.Key.Name}
	switch {
	case o.Key.Of(NetworkPolicies()):
		return o.networkPolicy(key)
	case o.Key.Of(MultiNetworkPolicies()):
		p, err := o.networkPolicy(key)
		if err == nil {
			p.Networks, err = o.policyNetworks()
		}
		return p, err
	case o.Key.Of(ClusterNetworkPolicies()):
		return o.clusterPolicy(key)
	}
	return model.Policy{PolicyKey: key}, o.errorf("", "is no policy")
}

func (o Object) networkPolicy(key model.PolicyKey) (model.Policy, error) {
	p := model.Policy{PolicyKey: key}
	var in networkPolicy
	if err := o.decode(&in); err != nil {
		return p, err
	}
	var r policyReader
	var err error
	p.Subject.Namespace = key.Namespace
	if p.Subject.Pods, err = selectorOf("spec.podSelector", in.Spec.PodSelector); err != nil {
		return p, o.errorf(seeExplain(o.Key), "%w", err)
	}
	types := in.Spec.PolicyTypes
	if len(types) == 0 {
		if types = []string{"Ingress"}; len(in.Spec.Egress) > 0 {
			types = append(types, "Egress")
		}
	}
	for i, name := range types {
		switch name {
		case "Ingress":
			p.Ingress.On, p.Ingress.Rules = true, r.rules("spec.ingress", "from", in.Spec.Ingress, key.Namespace)
		case "Egress":
			p.Egress.On, p.Egress.Rules = true, r.rules("spec.egress", "to", in.Spec.Egress, key.Namespace)
		default:
			r.fault("spec.policyTypes[%d] %q is neither Ingress nor Egress", i, name)
		}
	}
	p.Errors = r.faults
	return p, nil
}

// policyNetworks returns the networks of a MultiNetworkPolicy; a name without a namespace is in the policy's namespace.
func (o Object) policyNetworks() ([]string, error) {
	var in struct {
		Metadata metadata `json:"metadata"`
	}
	if err := o.decode(&in); err != nil {
		return nil, err
	}
	const hint = `name the networks, for example "k8s.v1.cni.cncf.io/policy-for: net1, other-namespace/net2"`
	var out []string
	for name := range strings.SplitSeq(in.Metadata.Annotations[policyFor], ",") {
		if name = strings.TrimSpace(name); name == "" {
			continue
		}
		namespace, rest, ok := strings.Cut(name, "/")
		if !ok {
			namespace, rest = o.Key.Namespace, name
		}
		if namespace == "" || rest == "" || strings.Contains(rest, "/") {
			return nil, o.errorf(hint, "annotation %s: %q names no network", policyFor, name)
		}
		out = append(out, namespace+"/"+rest)
	}
	if len(out) == 0 {
		return nil, o.errorf(hint, "annotation %s is missing: the policy is about no network", policyFor)
	}
	return out, nil
}

// policyReader decodes the rules of a policy and collects errors.
type policyReader struct {
	faults []string
}

func (r *policyReader) fault(format string, args ...any) {
	r.faults = append(r.faults, fmt.Sprintf(format, args...))
}

// rules decodes the rules of a NetworkPolicy. All of them accept, so that an invalid part is left out.
func (r *policyReader) rules(field, peers string, in []json.RawMessage, namespace string) []model.PolicyRule {
	var out []model.PolicyRule
	for i, raw := range in {
		at := fmt.Sprintf("%s[%d]", field, i)
		var rule struct {
			From  []json.RawMessage `json:"from"`
			To    []json.RawMessage `json:"to"`
			Ports []json.RawMessage `json:"ports"`
		}
		one := model.PolicyRule{Action: model.PolicyAccept}
		if err := json.Unmarshal(raw, &rule); err != nil {
			r.fault("%s: %v", at, err)
			out = append(out, one)
			continue
		}
		list := rule.From
		if peers == "to" {
			list = rule.To
		}
		one.AnyPeer, one.AnyPort = len(list) == 0, len(rule.Ports) == 0
		for j, raw := range list {
			if p, err := networkPeer(fmt.Sprintf("%s.%s[%d]", at, peers, j), raw, namespace); err != nil {
				r.fault("%v", err)
			} else {
				one.Peers = append(one.Peers, p)
			}
		}
		for j, raw := range rule.Ports {
			if p, err := networkPort(fmt.Sprintf("%s.ports[%d]", at, j), raw); err != nil {
				r.fault("%v", err)
			} else {
				one.Ports = append(one.Ports, p)
			}
		}
		out = append(out, one)
	}
	return out
}

func seeExplain(k Key) string {
	return "compare with `kubectl explain " + strings.ToLower(k.Kind) + ".spec`"
}
