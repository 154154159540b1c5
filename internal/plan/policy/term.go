// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"cmp"
	"slices"
	"strings"

	"github.com/weft-net/weft/internal/model"
)

// policy is a policy as it was told, with its subject made to be asked often.
type policy struct {
	model.Policy
	subject term
}

// order is that in which cluster-wide policies are asked; others are sorted by it, too. Two of one priority are asked
// in the order of their names: the specification leaves it open, and it should not depend on the weather.
func (p *policy) order(o *policy) int {
	return cmp.Or(strings.Compare(string(p.Tier), string(o.Tier)), cmp.Compare(p.Priority, o.Priority),
		strings.Compare(p.Name, o.Name))
}

// term is model.PodPeer, made to be asked often.
type term struct {
	namespace string // empty: spaces selects
	spaces    selector
	byName    bool // spaces asks for nothing but names
	pods      selector
}

func compileTerm(in model.PodPeer) term {
	return term{
		namespace: in.Namespace, spaces: compileSelector(in.Namespaces), byName: asksNames(in.Namespaces),
		pods: compileSelector(in.Pods),
	}
}

// nameLabel is the label that every namespace has, with its name.
const nameLabel = "kubernetes.io/metadata.name"

func asksNames(s model.Selector) bool {
	for k := range s.Labels {
		if k != nameLabel {
			return false
		}
	}
	return !slices.ContainsFunc(s.Requirements, func(r model.SelectorRequirement) bool { return r.Key != nameLabel })
}

func (t term) matches(id *identity) bool { return t.inSpace(id.space) && t.pods.matches(id.labels) }

// inSpace tells whether the term is about the namespace at all. One that is not known yet is selected by its name
// alone.
func (t term) inSpace(s *space) bool {
	if t.namespace != "" {
		return t.namespace == s.name
	}
	return (s.known || t.byName) && t.spaces.matches(s.labels)
}

// unsure tells whether the term might be about the namespace, which is not known yet.
func (t term) unsure(s *space) bool { return t.namespace == "" && !t.byName && !s.known }
