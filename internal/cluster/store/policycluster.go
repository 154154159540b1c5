// SPDX-License-Identifier: Apache-2.0

package store

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/weft-net/weft/internal/model"
)

// clusterPolicy decodes a ClusterNetworkPolicy.
func (o Object) clusterPolicy(key model.PolicyKey) (model.Policy, error) {
	p := model.Policy{PolicyKey: key}
	var in struct {
		Tier     string            `json:"tier"`
		Priority *int              `json:"priority"`
		Subject  json.RawMessage   `json:"subject"`
		Ingress  []json.RawMessage `json:"ingress"`
		Egress   []json.RawMessage `json:"egress"`
	}
	var r policyReader
	if err := r.spec(o, &in); err != nil {
		return p, err
	}
	switch p.Tier = model.PolicyTier(in.Tier); p.Tier {
	case model.TierAdmin, model.TierBaseline:
	default:
		return p, o.errorf("write Admin or Baseline", "spec.tier %q cannot be used", in.Tier)
	}
	if in.Priority == nil {
		return p, o.errorf("write a number from 0 to 1000", "spec.priority is missing")
	}
	if p.Priority = *in.Priority; p.Priority < 0 || p.Priority > 1000 {
		return p, o.errorf("write a number from 0 to 1000", "spec.priority %d cannot be used", p.Priority)
	}
	subject, err := subjectOf(in.Subject)
	if err == nil && subject == nil {
		err = errors.New("spec.subject has neither namespaces nor pods")
	}
	if err != nil {
		return p, o.errorf(seeExplain(o.Key), "%w", err)
	}
	p.Subject = *subject
	p.Ingress.Rules = r.clusterRules("spec.ingress", in.Ingress, false)
	p.Egress.Rules = r.clusterRules("spec.egress", in.Egress, true)
	p.Ingress.On, p.Egress.On = len(p.Ingress.Rules) > 0, len(p.Egress.Rules) > 0
	p.Errors = r.faults
	return p, nil
}

func subjectOf(raw json.RawMessage) (*model.PodPeer, error) {
	var in clusterPods
	if !isSet(raw) {
		return nil, nil
	}
	if err := strictly(raw, &in); err != nil {
		return nil, fmt.Errorf("spec.subject: %w", err)
	}
	return in.peer("spec.subject")
}

// clusterRules decodes rules. An invalid one fails closed, as the specification requires: an accept rule is dropped,
// any other is replaced by one that denies everything.
func (r *policyReader) clusterRules(field string, in []json.RawMessage, egress bool) []model.PolicyRule {
	var out []model.PolicyRule
	for i, raw := range in {
		at := fmt.Sprintf("%s[%d]", field, i)
		rule, err := clusterRule(at, raw, egress)
		if err != nil {
			r.fault("%v", err)
			closed := model.PolicyRule{Name: rule.Name, Action: model.PolicyAccept}
			if rule.Action != model.PolicyAccept {
				closed = model.PolicyRule{Name: rule.Name, Action: model.PolicyDeny, AnyPeer: true, AnyPort: true}
			}
			rule = closed
		}
		out = append(out, rule)
	}
	return out
}

func clusterRule(at string, raw json.RawMessage, egress bool) (model.PolicyRule, error) {
	var in struct {
		rulePeers
		Name      string            `json:"name"`
		Action    string            `json:"action"`
		Protocols []json.RawMessage `json:"protocols"`
	}
	err := json.Unmarshal(raw, &in)
	if err == nil {
		err = strictly(raw, &in)
	}
	out := model.PolicyRule{Name: in.Name, Action: model.PolicyAction(in.Action)}
	if err != nil {
		return out, fmt.Errorf("%s: %w", at, err)
	}
	switch out.Action {
	case model.PolicyAccept, model.PolicyDeny, model.PolicyPass:
	default:
		return out, fmt.Errorf("%s.action %q is none of Accept, Deny, Pass", at, in.Action)
	}
	direction := "from"
	if egress {
		direction = "to"
	}
	field := at + "." + direction
	peers, err := in.named(direction)
	if err != nil {
		return out, fmt.Errorf("%s: %w", at, err)
	}
	if len(peers) == 0 {
		return out, fmt.Errorf("%s is missing or empty", field)
	}
	for j, raw := range peers {
		more, err := clusterPeer(fmt.Sprintf("%s[%d]", field, j), raw, egress)
		if err != nil {
			return out, err
		}
		out.Peers = append(out.Peers, more...)
	}
	out.AnyPort = len(in.Protocols) == 0
	for j, raw := range in.Protocols {
		p, err := clusterPort(fmt.Sprintf("%s.protocols[%d]", at, j), raw)
		if err != nil {
			return out, err
		}
		out.Ports = append(out.Ports, p)
	}
	return out, nil
}

// clusterPods selects pods: by their namespaces, or by namespaces and labels.
type clusterPods struct {
	Namespaces json.RawMessage `json:"namespaces"`
	Pods       *struct {
		Namespaces json.RawMessage `json:"namespaceSelector"`
		Pods       json.RawMessage `json:"podSelector"`
	} `json:"pods"`
}

// peer returns the pods as the model's; nil if there is neither field.
func (in clusterPods) peer(field string) (*model.PodPeer, error) {
	out, err := &model.PodPeer{}, error(nil)
	switch {
	case isSet(in.Namespaces) && in.Pods != nil:
		return nil, fmt.Errorf("%s has both namespaces and pods: only one of them is allowed", field)
	case isSet(in.Namespaces):
		out.Namespaces, err = selectorOf(field+".namespaces", in.Namespaces)
	case in.Pods != nil:
		if out.Namespaces, err = selectorOf(field+".pods.namespaceSelector", in.Pods.Namespaces); err == nil {
			out.Pods, err = selectorOf(field+".pods.podSelector", in.Pods.Pods)
		}
	default:
		return nil, nil
	}
	return out, err
}

// clusterPeer decodes a peer, which may be several networks.
func clusterPeer(field string, raw json.RawMessage, egress bool) ([]model.PolicyPeer, error) {
	var in struct {
		clusterPods
		Nodes    json.RawMessage `json:"nodes"`
		Networks []string        `json:"networks"`
		Domains  []string        `json:"domainNames"`
	}
	if err := strictly(raw, &in); err != nil {
		return nil, fmt.Errorf("%s: %w", field, err)
	}
	pods, err := in.peer(field)
	switch {
	case err != nil:
		return nil, err
	case pods != nil:
		return []model.PolicyPeer{{Pods: pods}}, nil
	case egress && isSet(in.Nodes):
		s, err := selectorOf(field+".nodes", in.Nodes)
		return []model.PolicyPeer{{Nodes: &s}}, err
	case egress && len(in.Domains) > 0:
		return nil, fmt.Errorf("%s.domainNames %q: names of domains are not understood", field, in.Domains)
	case !egress || len(in.Networks) == 0:
		return nil, fmt.Errorf("%s has no peer that is understood", field)
	}
	var out []model.PolicyPeer
	for i, s := range in.Networks {
		p, err := blockPrefix(fmt.Sprintf("%s.networks[%d]", field, i), s)
		if err != nil {
			return nil, err
		}
		out = append(out, model.PolicyPeer{Block: &model.IPBlock{CIDR: p}})
	}
	return out, nil
}

// clusterPort decodes an entry of "protocols".
func clusterPort(field string, raw json.RawMessage) (model.PolicyPort, error) {
	type ports struct {
		Port *struct {
			Number *int64 `json:"number"`
			Range  *struct {
				Start int64 `json:"start"`
				End   int64 `json:"end"`
			} `json:"range"`
		} `json:"destinationPort"`
	}
	var in struct {
		TCP  *ports `json:"tcp"`
		UDP  *ports `json:"udp"`
		SCTP *ports `json:"sctp"`
		Name string `json:"destinationNamedPort"`
	}
	if err := strictly(raw, &in); err != nil {
		return model.PolicyPort{}, fmt.Errorf("%s: %w", field, err)
	}
	var out model.PolicyPort
	var p *ports
	switch {
	case in.Name != "":
		return model.PolicyPort{Name: in.Name}, nil
	case in.TCP != nil:
		out.Protocol, p = model.TCP, in.TCP
	case in.UDP != nil:
		out.Protocol, p = model.UDP, in.UDP
	case in.SCTP != nil:
		out.Protocol, p = model.SCTP, in.SCTP
	default:
		return out, fmt.Errorf("%s has no protocol that is understood", field)
	}
	if p.Port == nil {
		return out, nil
	}
	field += "." + strings.ToLower(string(out.Protocol)) + ".destinationPort"
	var err error
	switch {
	case p.Port.Number != nil:
		out.First, out.Last, err = portNumbers(field+".number", *p.Port.Number, *p.Port.Number)
	case p.Port.Range != nil:
		out.First, out.Last, err = portNumbers(field+".range.start", p.Port.Range.Start, p.Port.Range.End)
	default:
		err = fmt.Errorf("%s has neither number nor range", field)
	}
	return out, err
}
