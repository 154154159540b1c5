// SPDX-License-Identifier: Apache-2.0

package model

import (
	"net/netip"
	"strings"
)

// PolicyKind is a kind of network policy objects.
type PolicyKind string

// The kinds that weft enforces.
const (
	KindNetworkPolicy        PolicyKind = "NetworkPolicy"
	KindClusterNetworkPolicy PolicyKind = "ClusterNetworkPolicy"
	KindMultiNetworkPolicy   PolicyKind = "MultiNetworkPolicy"
	// Calico's own. The first has its API group in its name, to tell it from that of Kubernetes.
	KindCalicoNetworkPolicy PolicyKind = "NetworkPolicy.projectcalico.org"
	KindGlobalNetworkPolicy PolicyKind = "GlobalNetworkPolicy"
)

// What else decides at host endpoints: the profiles of one, and Calico's configuration of a node.
const (
	KindHostEndpoint       PolicyKind = "HostEndpoint"
	KindFelixConfiguration PolicyKind = "FelixConfiguration"
)

// Calico reports whether policies of the kind are Calico's own.
func (k PolicyKind) Calico() bool {
	return k == KindCalicoNetworkPolicy || k == KindGlobalNetworkPolicy
}

// ConditionUnderstood is the condition of a ClusterNetworkPolicy that reports whether weft supports all of it.
const ConditionUnderstood = "weft.dev/Understood"

// PolicyKey identifies a policy.
type PolicyKey struct {
	Kind      PolicyKind `json:"kind"`
	Namespace string     `json:"namespace,omitempty"`
	Name      string     `json:"name"`
}

// String returns "Kind namespace/name".
func (k PolicyKey) String() string {
	if k.Namespace == "" {
		return string(k.Kind) + " " + k.Name
	}
	return string(k.Kind) + " " + k.Namespace + "/" + k.Name
}

// Compare orders keys by kind, namespace and name.
func (k PolicyKey) Compare(o PolicyKey) int {
	if c := strings.Compare(string(k.Kind), string(o.Kind)); c != 0 {
		return c
	}
	if c := strings.Compare(k.Namespace, o.Namespace); c != 0 {
		return c
	}
	return strings.Compare(k.Name, o.Name)
}

// Policy is a policy of any kind.
//
// A NetworkPolicy isolates the pods that it selects in the directions that are on, and its rules, which all accept, are
// exceptions to that; several policies are additive. A ClusterNetworkPolicy does not isolate pods: its rules are
// evaluated in order, the policies of a tier by priority, and the first rule that matches decides. Calico's policies are
// evaluated likewise, in the tiers of its Tier objects; at the end of a tier in which one selects the pod, what no rule
// matched gets the tier's default action.
type Policy struct {
	PolicyKey
	// Tier and Priority are a ClusterNetworkPolicy's; a lower priority is evaluated earlier.
	Tier     PolicyTier `json:"tier,omitempty"`
	Priority int        `json:"priority,omitempty"`
	// Order is that of one of Calico's policies in its tier; nil is after all others.
	Order *float64 `json:"order,omitempty"`
	// Networks are the networks of a MultiNetworkPolicy, as "namespace/name"; other policies apply to the cluster's
	// network.
	Networks []string        `json:"networks,omitempty"`
	Subject  PodPeer         `json:"subject"`
	Ingress  PolicyDirection `json:"ingress,omitzero"`
	Egress   PolicyDirection `json:"egress,omitzero"`
	// Host is what one of Calico's policies is about at the host endpoints that it selects.
	Host HostScope `json:"host,omitzero"`
	// Errors describe the parts that are invalid. The policy fails closed there: an invalid rule that would accept does
	// not match, one that would deny or pass denies everything.
	Errors []string `json:"faults,omitempty"`
}

// Services returns the Services whose endpoints the policy's rules match.
func (p Policy) Services() (out []ServiceMatch) {
	for _, d := range []PolicyDirection{p.Ingress, p.Egress} {
		for _, r := range d.Rules {
			if r.Conditions == nil {
				continue
			}
			for _, s := range []*ServiceMatch{r.Conditions.Source.Service, r.Conditions.Destination.Service} {
				if s != nil {
					out = append(out, *s)
				}
			}
		}
	}
	return out
}

// PolicyTier is when a ClusterNetworkPolicy is evaluated, or the name of a Calico policy's tier.
type PolicyTier string

// The tiers of ClusterNetworkPolicies: before and after NetworkPolicies.
const (
	TierAdmin    PolicyTier = "Admin"
	TierBaseline PolicyTier = "Baseline"
)

// TierDefault is Calico's tier of policies that name none; Kubernetes' NetworkPolicies are in it.
const TierDefault PolicyTier = "default"

// Tier is one of Calico's tiers.
type Tier struct {
	Name PolicyTier
	// Order is when the tier is evaluated; nil is after all others.
	Order *float64
	// Pass: what no rule of the tier matches continues in the next one; otherwise it is denied.
	Pass bool
}

// PolicyDirection is the ingress or egress part of a policy.
type PolicyDirection struct {
	On    bool         `json:"on"`
	Rules []PolicyRule `json:"rules,omitempty"`
}

// PolicyRule matches a connection if one of its peers and one of its ports does.
type PolicyRule struct {
	Name   string       `json:"name,omitempty"`
	Action PolicyAction `json:"action"`
	// AnyPeer and AnyPort: the rule has no list of peers or ports and matches all. Otherwise an empty list matches
	// nothing.
	AnyPeer bool         `json:"anyPeer,omitempty"`
	Peers   []PolicyPeer `json:"peers,omitempty"`
	AnyPort bool         `json:"anyPort,omitempty"`
	Ports   []PolicyPort `json:"ports,omitempty"`
	// Conditions are those of a rule of Calico's, which has no lists of peers and ports.
	Conditions *RuleConditions `json:"conditions,omitempty"`
}

// PolicyAction is the action of a rule on a connection that it matches.
type PolicyAction string

// The actions. Pass continues with the next tier, Log with the next rule.
const (
	PolicyAccept PolicyAction = "Accept"
	PolicyDeny   PolicyAction = "Deny"
	PolicyPass   PolicyAction = "Pass"
	PolicyLog    PolicyAction = "Log"
)

// PolicyPeer is the other end of a connection: exactly one field is set.
type PolicyPeer struct {
	Pods  *PodPeer  `json:"pods,omitempty"`
	Block *IPBlock  `json:"ipBlock,omitempty"`
	Nodes *Selector `json:"nodes,omitempty"`
}

// PodPeer selects pods. Pods with host networking are never selected.
type PodPeer struct {
	// Namespace is the only namespace of the pods; if it is empty, Namespaces selects them.
	Namespace  string   `json:"namespace,omitempty"`
	Namespaces Selector `json:"namespaceSelector,omitzero"`
	Pods       Selector `json:"podSelector,omitzero"`
	// Endpoints is how Calico's policies select, together with Namespace; the selectors above are empty then.
	Endpoints *EndpointSelector `json:"endpoints,omitempty"`
}

// String returns the same text for equal peers.
func (p PodPeer) String() string {
	if p.Endpoints != nil {
		return p.Namespace + "::" + p.Endpoints.String()
	}
	if p.Namespace != "" {
		return p.Namespace + ":" + p.Pods.String()
	}
	return "[" + p.Namespaces.String() + "]:" + p.Pods.String()
}

// IPBlock is a range of addresses with exceptions.
type IPBlock struct {
	CIDR   netip.Prefix   `json:"cidr"`
	Except []netip.Prefix `json:"except,omitempty"`
}

// PolicyPort is a port, a range of ports, or a named port of the receiving pod.
type PolicyPort struct {
	// Protocol is TCP, UDP or SCTP; with a name it may be empty, which is any.
	Protocol Protocol `json:"protocol,omitempty"`
	// First and Last are the range; both 0: all ports of the protocol.
	First uint16 `json:"first,omitempty"`
	Last  uint16 `json:"last,omitempty"`
	Name  string `json:"name,omitempty"`
}

// Protocol is a transport protocol, as in the Kubernetes API.
type Protocol string

// The protocols that have ports in policies.
const (
	TCP  Protocol = "TCP"
	UDP  Protocol = "UDP"
	SCTP Protocol = "SCTP"
)

// PodPort is a named port of a container of a pod.
type PodPort struct {
	Name     string   `json:"name"`
	Protocol Protocol `json:"protocol"`
	Number   uint16   `json:"number"`
}
