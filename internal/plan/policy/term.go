// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"slices"

	"github.com/weft-net/weft/internal/model"
)

// policy is a policy with its compiled subject.
type policy struct {
	model.Policy
	subject term
}

// term is model.PodPeer, compiled for fast evaluation.
type term struct {
	namespace  string // empty: namespaces selects
	namespaces selector
	byName     bool // namespaces selects by name only
	pods       selector
	endpoints  *endpointTerm // of a policy of Calico's
}

func compileTerm(in model.PodPeer) term {
	if in.Endpoints != nil {
		return term{namespace: in.Namespace, endpoints: compileEndpointTerm(*in.Endpoints)}
	}
	return term{
		namespace: in.Namespace, namespaces: compileSelector(in.Namespaces), byName: selectsByNameOnly(in.Namespaces),
		pods: compileSelector(in.Pods),
	}
}

// nameLabel is the label that every namespace has, with its name.
const nameLabel = "kubernetes.io/metadata.name"

func selectsByNameOnly(s model.Selector) bool {
	for k := range s.Labels {
		if k != nameLabel {
			return false
		}
	}
	return !slices.ContainsFunc(s.Requirements, func(r model.SelectorRequirement) bool { return r.Key != nameLabel })
}

func (t term) matches(id *identity) bool {
	if t.endpoints != nil {
		return (t.namespace == "" || t.namespace == id.namespace.name) && t.endpoints.Matches(podView{id})
	}
	return t.matchesNamespace(id.namespace) && t.pods.matches(id.labels)
}

// matchesNamespace reports whether the term selects the namespace. One that is not known yet is selected by its name
// only.
func (t term) matchesNamespace(s *namespace) bool {
	if t.namespace != "" {
		return t.namespace == s.name
	}
	if t.endpoints != nil {
		return s.known || !t.endpoints.namespaced
	}
	return (s.known || t.byName) && t.namespaces.matches(s.labels)
}

// mightMatch reports whether the term might select the namespace, which is not known yet.
func (t term) mightMatch(s *namespace) bool {
	if t.endpoints != nil {
		return (t.namespace == "" || t.namespace == s.name) && t.endpoints.namespaced && !s.known
	}
	return t.namespace == "" && !t.byName && !s.known
}
