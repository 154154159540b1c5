// SPDX-License-Identifier: Apache-2.0

package model

import (
	"net/netip"
	"slices"
	"strings"
)

// EndpointSelector selects endpoints and network sets as Calico does: by expressions on labels that are the object's own
// and derived ones (see Calico's reference of selectors). All its parts must match.
type EndpointSelector struct {
	// Labels is the expression on the endpoint's labels.
	Labels Expression
	// Namespaces is the expression on the labels of its namespace; nil: not compared.
	Namespaces *Expression
	// ServiceAccounts are the names of its service account, of which one must match; none: not compared.
	ServiceAccounts []string
	// ServiceAccountLabels is the expression on the labels of its service account; nil: not compared.
	ServiceAccountLabels *Expression
	// Global selects only what has no namespace.
	Global bool
	// Not is an expression that the endpoint's labels may not match; nil: not compared.
	Not *Expression
	// AllLabel is the label that all() stands for in Labels, AllAccountsLabel in ServiceAccountLabels; empty: everything.
	AllLabel, AllAccountsLabel string
}

// Labels that Calico derives for endpoints. Those of their namespaces and service accounts have a prefix.
const (
	NamespaceLabel       = "projectcalico.org/namespace"
	OrchestratorLabel    = "projectcalico.org/orchestrator"
	AccountLabel         = "projectcalico.org/serviceaccount"
	DerivedNameLabel     = "projectcalico.org/name" // behind a prefix
	NamespaceLabelPrefix = "pcns."
	AccountLabelPrefix   = "pcsa."
)

// Matches reports whether the selector selects what has these labels.
func (s EndpointSelector) Matches(v LabelView) bool {
	_, namespaced := v.Label(NamespaceLabel)
	if s.Global && namespaced {
		return false
	}
	if len(s.ServiceAccounts) > 0 {
		if name, is := v.Label(AccountLabelPrefix + DerivedNameLabel); !is || !slices.Contains(s.ServiceAccounts, name) {
			return false
		}
	}
	has := func(label string) bool {
		if label == "" {
			return true
		}
		_, is := v.Label(label)
		return is
	}
	return (s.Labels.Empty() || s.Labels.MatchesView(prefixedView{v, "", has(s.AllLabel)})) &&
		(s.Not == nil || !s.Not.MatchesView(v)) &&
		(s.Namespaces == nil || s.Namespaces.MatchesView(prefixedView{v, NamespaceLabelPrefix, namespaced})) &&
		(s.ServiceAccountLabels == nil ||
			s.ServiceAccountLabels.MatchesView(prefixedView{v, AccountLabelPrefix, has(s.AllAccountsLabel)}))
}

// PodLabels is how Calico's policies see a pod's labels: its own, those of its namespace and service account, and derived
// ones, which go before its own.
type PodLabels struct {
	Pod                Pod
	Namespace, Account map[string]string
}

// All implements LabelView.
func (PodLabels) All() bool { return true }

// Label implements LabelView.
func (v PodLabels) Label(key string) (string, bool) {
	if rest, is := strings.CutPrefix(key, NamespaceLabelPrefix); is {
		if rest == DerivedNameLabel {
			return v.Pod.Namespace, true
		}
		value, is := v.Namespace[rest]
		return value, is
	}
	if rest, is := strings.CutPrefix(key, AccountLabelPrefix); is {
		if rest == DerivedNameLabel {
			return v.Pod.ServiceAccount, v.Pod.ServiceAccount != ""
		}
		value, is := v.Account[rest]
		return value, is
	}
	switch key {
	case NamespaceLabel:
		return v.Pod.Namespace, true
	case OrchestratorLabel:
		return "k8s", true
	case AccountLabel:
		return v.Pod.ServiceAccount, v.Pod.ServiceAccount != ""
	}
	value, is := v.Pod.Labels[key]
	return value, is
}

// prefixedView sees the derived labels of one prefix without it.
type prefixedView struct {
	of     LabelView
	prefix string
	all    bool
}

func (v prefixedView) Label(key string) (string, bool) { return v.of.Label(v.prefix + key) }

func (v prefixedView) All() bool { return v.all }

// String returns the same text for equal selectors.
func (s EndpointSelector) String() string {
	parts := []string{"labels " + s.Labels.String()}
	if s.Namespaces != nil {
		parts = append(parts, "namespaces "+s.Namespaces.String())
	}
	if len(s.ServiceAccounts) > 0 {
		parts = append(parts, "accounts "+strings.Join(slices.Sorted(slices.Values(s.ServiceAccounts)), ","))
	}
	if s.ServiceAccountLabels != nil {
		parts = append(parts, "account labels "+s.ServiceAccountLabels.String())
	}
	if s.Global {
		parts = append(parts, "global")
	}
	if s.Not != nil {
		parts = append(parts, "not "+s.Not.String())
	}
	return strings.Join(parts, "; ")
}

// Numbers of protocols (IANA) that rules treat in a way of their own.
const (
	NumberICMP   = 1
	NumberTCP    = 6
	NumberUDP    = 17
	NumberICMPv6 = 58
	NumberSCTP   = 132
)

// RuleConditions are the conditions of a rule of Calico's: all of them must match.
type RuleConditions struct {
	// Family is 4 or 6; 0: both.
	Family int
	// Protocol is a protocol's number, 0: any; NotProtocol is one that must not match.
	Protocol, NotProtocol uint8
	ICMP, NotICMP         *ICMPMatch
	Source, Destination   EndConditions
}

// ICMPMatch is a type of ICMP or ICMPv6, and a code of it.
type ICMPMatch struct {
	Type uint8
	Code *uint8
}

// EndConditions are the conditions on one end of a connection.
type EndConditions struct {
	// Nets are prefixes of which one must contain the address, none: not compared; NotNets may not contain it. Of nets of
	// one family only, the rule is for that family.
	Nets, NotNets []netip.Prefix
	// Peer selects the address, nil: not compared; NotPeer may not select it. With both, what a rule of Calico's may not
	// select is in Peer: no other owner of the address decides then.
	Peer, NotPeer *PodPeer
	// Service is one of whose endpoints the end must be; nil: not compared.
	Service *ServiceMatch
	// Ports are those of which one must match, none: not compared; none of NotPorts may match. A port without a name has
	// the rule's protocol.
	Ports, NotPorts []PolicyPort
}

// ServiceMatch matches the endpoints of a Service, ready or not: their addresses, with Ports at their ports only.
type ServiceMatch struct {
	Namespace, Name string
	Ports           bool
}

// EndpointSlice is a part of the endpoints of a Service.
type EndpointSlice struct {
	Namespace, Name, Service string
	Endpoints                []ServiceEndpoint
}

// ServiceEndpoint is an address and a port of a Service.
type ServiceEndpoint struct {
	Addr     netip.Addr
	Protocol Protocol
	Port     uint16
}

// NetworkSet is a set of prefixes with labels, which rules select as they select pods. Without a namespace it is a
// GlobalNetworkSet.
type NetworkSet struct {
	Namespace, Name string
	Labels          map[string]string
	Nets            []netip.Prefix
	// Incomplete: the object has prefixes that cannot be read.
	Incomplete bool
}
