// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"cmp"
	"slices"
	"strings"

	"github.com/weft-net/weft/internal/model"
)

// policy is a policy with its compiled subject.
type policy struct {
	model.Policy
	subject term
}

// order compares policies by their order of evaluation. Two of one priority are evaluated in the order of their names:
// the specification leaves it open, and it should be deterministic.
func (p *policy) order(o *policy) int {
	return cmp.Or(strings.Compare(string(p.Tier), string(o.Tier)), cmp.Compare(p.Priority, o.Priority),
		strings.Compare(p.Name, o.Name))
}

// term is model.PodPeer, compiled for fast evaluation.
type term struct {
	namespace  string // empty: namespaces selects
	namespaces selector
	byName     bool // namespaces selects by name only
	pods       selector
}

func compileTerm(in model.PodPeer) term {
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
	return t.matchesNamespace(id.namespace) && t.pods.matches(id.labels)
}

// matchesNamespace reports whether the term selects the namespace. One that is not known yet is selected by its name
// only.
func (t term) matchesNamespace(s *namespace) bool {
	if t.namespace != "" {
		return t.namespace == s.name
	}
	return (s.known || t.byName) && t.namespaces.matches(s.labels)
}

// mightMatch reports whether the term might select the namespace, which is not known yet.
func (t term) mightMatch(s *namespace) bool { return t.namespace == "" && !t.byName && !s.known }
