// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"strings"
	"unique"

	"github.com/weft-net/weft/internal/model"
)

// endpointTerm is model.EndpointSelector with what is computed once.
type endpointTerm struct {
	model.EndpointSelector
	// namespaced: labels of namespaces decide, so that nothing is known before the namespace is.
	namespaced bool
}

func compileEndpointTerm(in model.EndpointSelector) *endpointTerm {
	return &endpointTerm{in, in.Namespaces != nil || strings.Contains(in.Labels.String(), model.NamespaceLabelPrefix) ||
		in.Not != nil && strings.Contains(in.Not.String(), model.NamespaceLabelPrefix)}
}

// podView is how Calico sees the labels of a pod. Derived labels go before the pod's own, with which a pod could pretend
// to be in another namespace.
type podView struct{ id *identity }

func (podView) All() bool { return true }

func (v podView) Label(key string) (string, bool) {
	s := v.id.namespace
	if rest, is := strings.CutPrefix(key, model.NamespaceLabelPrefix); is {
		return s.derived(rest)
	}
	if rest, is := strings.CutPrefix(key, model.AccountLabelPrefix); is {
		account, is := v.id.labels.get(unique.Make(model.AccountLabel))
		if !is || rest == model.DerivedNameLabel {
			return textOf(account, is)
		}
		return textOf(s.accounts[account.Value()].get(unique.Make(rest)))
	}
	switch key {
	case model.NamespaceLabel:
		return s.name, true
	case model.OrchestratorLabel:
		return "k8s", true
	}
	return textOf(v.id.labels.get(unique.Make(key)))
}

// derived returns a label that the endpoints and sets of a namespace have of it, without its prefix.
func (s *namespace) derived(key string) (string, bool) {
	if key == model.DerivedNameLabel {
		return s.name, true
	}
	return textOf(s.labels.get(unique.Make(key)))
}

func textOf(v text, is bool) (string, bool) {
	if !is {
		return "", false
	}
	return v.Value(), true
}
