// SPDX-License-Identifier: Apache-2.0

package store

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/weft-net/weft/internal/model"
)

// policyFor is the annotation with the networks of a MultiNetworkPolicy.
const policyFor = "k8s.v1.cni.cncf.io/policy-for"

// networkPolicy is the spec of a NetworkPolicy or a MultiNetworkPolicy. Rules are decoded one by one, so that an invalid
// one does not affect the others.
type networkPolicy struct {
	PodSelector json.RawMessage   `json:"podSelector"`
	PolicyTypes []string          `json:"policyTypes"`
	Ingress     []json.RawMessage `json:"ingress"`
	Egress      []json.RawMessage `json:"egress"`
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
	var r policyReader
	err := r.spec(o, &in)
	if err != nil {
		return p, err
	}
	p.Subject.Namespace = key.Namespace
	if p.Subject.Pods, err = selectorOf("spec.podSelector", in.PodSelector); err != nil {
		return p, o.errorf(seeExplain(o.Key), "%w", err)
	}
	types := in.PolicyTypes
	if len(types) == 0 {
		if types = []string{"Ingress"}; len(in.Egress) > 0 {
			types = append(types, "Egress")
		}
	}
	for i, name := range types {
		switch name {
		case "Ingress":
			p.Ingress.On, p.Ingress.Rules = true, r.rules("spec.ingress", "from", in.Ingress, key.Namespace)
		case "Egress":
			p.Egress.On, p.Egress.Rules = true, r.rules("spec.egress", "to", in.Egress, key.Namespace)
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

// spec decodes the spec of a policy. A field that it does not have is a fault: the spec is in force without it.
func (r *policyReader) spec(o Object, into any) error {
	var in struct {
		Spec json.RawMessage `json:"spec"`
	}
	if err := o.decode(&in); err != nil || !isSet(in.Spec) {
		return err
	}
	if err := json.Unmarshal(in.Spec, into); err != nil {
		return o.errorf(seeExplain(o.Key), "spec: %w", err)
	}
	if err := strictly(in.Spec, into); err != nil {
		r.fault("spec: %v", err)
	}
	return nil
}

// strictly decodes JSON like json.Unmarshal, and refuses a field that the value does not have: ignored, a misspelled
// "from" would let a rule allow everything.
func strictly(raw json.RawMessage, into any) error {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		if rest, is := strings.CutPrefix(err.Error(), "json: unknown field "); is {
			return fmt.Errorf("field %s is not known", rest)
		}
		return err
	}
	return nil
}

// rules decodes the rules of a NetworkPolicy. All of them accept, so that an invalid part is left out.
func (r *policyReader) rules(field, peers string, in []json.RawMessage, namespace string) []model.PolicyRule {
	var out []model.PolicyRule
	for i, raw := range in {
		at := fmt.Sprintf("%s[%d]", field, i)
		var rule struct {
			rulePeers
			Ports []json.RawMessage `json:"ports"`
		}
		one := model.PolicyRule{Action: model.PolicyAccept}
		err := strictly(raw, &rule)
		var list []json.RawMessage
		if err == nil {
			list, err = rule.named(peers)
		}
		if err != nil {
			r.fault("%s: %v", at, err)
			out = append(out, one)
			continue
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

// rulePeers are the peers of a rule: From of ingress, To of egress.
type rulePeers struct {
	From []json.RawMessage `json:"from"`
	To   []json.RawMessage `json:"to"`
}

// named returns those of "from" or "to". The other ones are an error: ignored, the rule would be about every peer.
func (p rulePeers) named(field string) ([]json.RawMessage, error) {
	list, other, name := p.From, p.To, "to"
	if field == "to" {
		list, other, name = p.To, p.From, "from"
	}
	if other != nil {
		return nil, fmt.Errorf("field %q is not known: here it is %q", name, field)
	}
	return list, nil
}

func seeExplain(k Key) string {
	return "compare with `kubectl explain " + strings.ToLower(k.Kind) + ".spec`"
}
