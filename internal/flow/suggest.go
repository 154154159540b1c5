// SPDX-License-Identifier: Apache-2.0

package flow

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// NetworkPolicy is a suggested NetworkPolicy, as it is written in a manifest.
type NetworkPolicy struct {
	APIVersion string     `json:"apiVersion"`
	Kind       string     `json:"kind"`
	Metadata   Metadata   `json:"metadata"`
	Spec       PolicySpec `json:"spec"`
}

// Metadata names it.
type Metadata struct {
	Name      string `json:"name"`
	Namespace string `json:"namespace"`
}

// PolicySpec is its content.
type PolicySpec struct {
	PodSelector LabelSelector `json:"podSelector"`
	PolicyTypes []string      `json:"policyTypes"`
	Ingress     []PolicyRule  `json:"ingress,omitempty"`
	Egress      []PolicyRule  `json:"egress,omitempty"`
}

// LabelSelector selects what has all labels.
type LabelSelector struct {
	MatchLabels map[string]string `json:"matchLabels,omitempty"`
}

// PolicyRule allows one peer and the ports that were seen.
type PolicyRule struct {
	From  []PolicyPeer `json:"from,omitempty"`
	To    []PolicyPeer `json:"to,omitempty"`
	Ports []PolicyPort `json:"ports,omitempty"`
}

// PolicyPeer are pods, or addresses.
type PolicyPeer struct {
	NamespaceSelector *LabelSelector `json:"namespaceSelector,omitempty"`
	PodSelector       *LabelSelector `json:"podSelector,omitempty"`
	IPBlock           *IPBlock       `json:"ipBlock,omitempty"`
}

// IPBlock is a prefix.
type IPBlock struct {
	CIDR string `json:"cidr"`
}

// PolicyPort is a port.
type PolicyPort struct {
	Protocol string `json:"protocol"`
	Port     uint16 `json:"port"`
}

// Suggestion collects flows, and suggests policies that allow them and nothing else.
type Suggestion struct {
	labels   Labels
	subjects map[string]*subject
	skipped  map[string]int
}

// subject are the pods of a policy: those of a namespace with the same labels.
type subject struct {
	namespace string
	labels    map[string]string
	rules     map[string]map[string]*suggestedRule // by policy type and peer
}

type suggestedRule struct {
	peer  PolicyPeer
	ports map[PolicyPort]bool
}

// The policy types.
const (
	typeIngress = "Ingress"
	typeEgress  = "Egress"
)

// namespaceLabel is the label that each namespace has with its name.
const namespaceLabel = "kubernetes.io/metadata.name"

// perPod are labels that differ between the pods of a workload.
func perPod() []string {
	return []string{
		"pod-template-hash", "controller-revision-hash", "pod-template-generation", "statefulset.kubernetes.io/pod-name",
		"apps.kubernetes.io/pod-index", "batch.kubernetes.io/controller-uid", "batch.kubernetes.io/job-completion-index",
		"controller-uid",
	}
}

// kubevirtLabels begin labels of a VM's pod that are about the pod, such as its node.
const kubevirtLabels = "kubevirt.io/"

// NewSuggestion returns a suggestion without flows. labels are those of the cluster's pods.
func NewSuggestion(labels Labels) *Suggestion {
	return &Suggestion{labels: labels, subjects: map[string]*subject{}, skipped: map[string]int{}}
}

// Add adds a flow.
func (s *Suggestion) Add(r Record) {
	if r.Kind == End {
		return // it was reported when it began
	}
	port := PolicyPort{Protocol: strings.ToUpper(r.Protocol), Port: r.To.Port}
	switch {
	case r.To.Kind == OtherEnd:
		s.skipped["flows of which agents have kept no more than their number"]++
		return
	case !slices.Contains([]string{"TCP", "UDP", "SCTP"}, port.Protocol):
		s.skipped["flows of "+r.Protocol+", which NetworkPolicy has no word for"]++
		return
	case r.To.Network != "" || r.From.Network != "":
		s.skipped["flows of further networks, which NetworkPolicy is not about"]++
		return
	}
	s.side(typeIngress, r.To, r.From, port)
	s.side(typeEgress, r.From, r.To, port)
}

// side adds a rule to the policy of one end.
func (s *Suggestion) side(kind string, own, peer Endpoint, port PolicyPort) {
	if own.Kind != PodEnd && own.Kind != VMEnd || kind == typeIngress && peer.Kind == NodeEnd && peer.Node == own.Node {
		return // a node always reaches its own pods
	}
	namespace, labels, ok := s.workload(own)
	if !ok {
		s.skipped["flows of pods without labels: "+own.podName()]++
		return
	}
	id := namespace + "\x00" + labelText(labels)
	sub := s.subjects[id]
	if sub == nil {
		sub = &subject{namespace, labels, map[string]map[string]*suggestedRule{}}
		s.subjects[id] = sub
	}
	if sub.rules[kind] == nil {
		sub.rules[kind] = map[string]*suggestedRule{}
	}
	p, key := s.peer(peer)
	rule := sub.rules[kind][key]
	if rule == nil {
		rule = &suggestedRule{p, map[PolicyPort]bool{}}
		sub.rules[kind][key] = rule
	}
	rule.ports[port] = true
}

// podName is the name of the end's pod.
func (e Identity) podName() string {
	if e.Kind == VMEnd {
		return e.Pod
	}
	return e.Name
}

// workload returns the labels that all pods of an end's workload have; false if there are none.
func (s *Suggestion) workload(e Endpoint) (namespace string, labels map[string]string, ok bool) {
	namespace, _, _ = strings.Cut(e.podName(), "/")
	labels = maps.Clone(s.labels(e.podName()))
	maps.DeleteFunc(labels, func(key, _ string) bool {
		return slices.Contains(perPod(), key) || strings.HasPrefix(key, kubevirtLabels)
	})
	return namespace, labels, len(labels) > 0
}

// peer returns the peer of a rule, and what identifies it.
func (s *Suggestion) peer(e Endpoint) (PolicyPeer, string) {
	if e.Kind == PodEnd || e.Kind == VMEnd {
		if namespace, labels, ok := s.workload(e); ok {
			return PolicyPeer{
				NamespaceSelector: &LabelSelector{map[string]string{namespaceLabel: namespace}},
				PodSelector:       &LabelSelector{labels},
			}, "pods " + namespace + "\x00" + labelText(labels)
		}
	}
	cidr := netip.PrefixFrom(e.Addr, e.Addr.BitLen()).String()
	return PolicyPeer{IPBlock: &IPBlock{cidr}}, "block " + cidr
}

func labelText(labels map[string]string) string {
	var out []string
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		out = append(out, key+"="+labels[key])
	}
	return strings.Join(out, ",")
}

// Policies returns the policies, and notes on what they do not allow.
func (s *Suggestion) Policies() (out []NetworkPolicy, notes []string) {
	names := map[string]int{}
	for _, id := range slices.Sorted(maps.Keys(s.subjects)) {
		sub := s.subjects[id]
		name := sub.name()
		if names[sub.namespace+"/"+name]++; names[sub.namespace+"/"+name] > 1 {
			name += "-" + strconv.Itoa(names[sub.namespace+"/"+name])
		}
		p := NetworkPolicy{
			APIVersion: "networking.k8s.io/v1", Kind: "NetworkPolicy", Metadata: Metadata{name, sub.namespace},
			Spec: PolicySpec{PodSelector: LabelSelector{sub.labels}},
		}
		for _, kind := range []string{typeIngress, typeEgress} {
			if rules := sub.rules[kind]; len(rules) > 0 {
				p.Spec.PolicyTypes = append(p.Spec.PolicyTypes, kind)
				p.Spec.add(kind, rules)
			}
		}
		out = append(out, p)
	}
	for _, why := range slices.Sorted(maps.Keys(s.skipped)) {
		notes = append(notes, strconv.Itoa(s.skipped[why])+" "+why)
	}
	return out, notes
}

func (p *PolicySpec) add(kind string, rules map[string]*suggestedRule) {
	for _, key := range slices.Sorted(maps.Keys(rules)) {
		r := rules[key]
		ports := slices.SortedFunc(maps.Keys(r.ports), func(a, b PolicyPort) int {
			return cmp.Or(cmp.Compare(a.Protocol, b.Protocol), cmp.Compare(a.Port, b.Port))
		})
		if kind == typeIngress {
			p.Ingress = append(p.Ingress, PolicyRule{From: []PolicyPeer{r.peer}, Ports: ports})
		} else {
			p.Egress = append(p.Egress, PolicyRule{To: []PolicyPeer{r.peer}, Ports: ports})
		}
	}
}

// name returns a name for the policy of a workload.
func (s *subject) name() string {
	for _, key := range []string{"app.kubernetes.io/name", "app", "k8s-app", "vm.kubevirt.io/name"} {
		if value := s.labels[key]; value != "" {
			return "observed-" + strings.ToLower(strings.ReplaceAll(value, "_", "-"))
		}
	}
	return "observed"
}
