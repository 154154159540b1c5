// SPDX-License-Identifier: Apache-2.0

package model

import (
	"net/netip"
	"strings"
)

// PolicyKind is a kind of objects that say who may talk to whom.
type PolicyKind string

// The kinds that weft understands.
const (
	KindNetworkPolicy        PolicyKind = "NetworkPolicy"
	KindClusterNetworkPolicy PolicyKind = "ClusterNetworkPolicy"
	KindMultiNetworkPolicy   PolicyKind = "MultiNetworkPolicy"
)

// PolicyKey names a policy.
type PolicyKey struct {
	Kind      PolicyKind `json:"kind"`
	Namespace string     `json:"namespace,omitempty"`
	Name      string     `json:"name"`
}

// String is "Kind namespace/name".
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
// A NetworkPolicy isolates the pods that it selects in the directions that are on, and its rules, all of which accept,
// are exceptions from that; what several say is added up. A ClusterNetworkPolicy isolates nobody: its rules are asked
// in their order, policies of a tier by priority, and the first that matches decides.
type Policy struct {
	PolicyKey
	// Tier and Priority are a ClusterNetworkPolicy's; a lower priority is asked earlier.
	Tier     PolicyTier `json:"tier,omitempty"`
	Priority int        `json:"priority,omitempty"`
	// Networks are those whose interfaces a MultiNetworkPolicy is about, as "namespace/name"; the others are about the
	// cluster's network.
	Networks []string        `json:"networks,omitempty"`
	Subject  PodPeer         `json:"subject"`
	Ingress  PolicyDirection `json:"ingress,omitzero"`
	Egress   PolicyDirection `json:"egress,omitzero"`
	// Faults say what could not be understood. The policy fails closed there: what would accept does not, what would deny
	// or pass on denies everything.
	Faults []string `json:"faults,omitempty"`
}

// PolicyTier says when a ClusterNetworkPolicy is asked.
type PolicyTier string

// The tiers: before and after NetworkPolicies.
const (
	TierAdmin    PolicyTier = "Admin"
	TierBaseline PolicyTier = "Baseline"
)

// PolicyDirection is what a policy says of what its subjects receive, or of what they send.
type PolicyDirection struct {
	On    bool         `json:"on"`
	Rules []PolicyRule `json:"rules,omitempty"`
}

// PolicyRule is true of a connection if one of the peers and one of the ports is.
type PolicyRule struct {
	Name   string       `json:"name,omitempty"`
	Action PolicyAction `json:"action"`
	// AnyPeer and AnyPort: no peers, no ports are asked for, everything is meant. Otherwise an empty list is true of
	// nothing.
	AnyPeer bool         `json:"anyPeer,omitempty"`
	Peers   []PolicyPeer `json:"peers,omitempty"`
	AnyPort bool         `json:"anyPort,omitempty"`
	Ports   []PolicyPort `json:"ports,omitempty"`
}

// PolicyAction is what a rule does with a connection that it is true of.
type PolicyAction string

// The actions. Pass leaves it to the next tier.
const (
	PolicyAccept PolicyAction = "Accept"
	PolicyDeny   PolicyAction = "Deny"
	PolicyPass   PolicyAction = "Pass"
)

// PolicyPeer is the other end of a connection: one of the three is set.
type PolicyPeer struct {
	Pods  *PodPeer  `json:"pods,omitempty"`
	Block *IPBlock  `json:"ipBlock,omitempty"`
	Nodes *Selector `json:"nodes,omitempty"`
}

// PodPeer selects pods. Pods of the host's network are never selected.
type PodPeer struct {
	// Namespace is the only namespace to look in; where it is empty, Namespaces selects them.
	Namespace  string   `json:"namespace,omitempty"`
	Namespaces Selector `json:"namespaceSelector,omitzero"`
	Pods       Selector `json:"podSelector,omitzero"`
}

// String is the same for all that say the same.
func (p PodPeer) String() string {
	if p.Namespace != "" {
		return p.Namespace + ":" + p.Pods.String()
	}
	return "[" + p.Namespaces.String() + "]:" + p.Pods.String()
}

// IPBlock is a range of addresses without some others.
type IPBlock struct {
	CIDR   netip.Prefix   `json:"cidr"`
	Except []netip.Prefix `json:"except,omitempty"`
}

// PolicyPort is a port, a range of ports, or a port by the name that the receiving pod gave it.
type PolicyPort struct {
	// Protocol is TCP, UDP or SCTP; with a name it may be empty, which is any.
	Protocol Protocol `json:"protocol,omitempty"`
	// First and Last are the range; both 0: all ports of the protocol.
	First uint16 `json:"first,omitempty"`
	Last  uint16 `json:"last,omitempty"`
	Name  string `json:"name,omitempty"`
}

// Protocol is a transport protocol, in Kubernetes' words.
type Protocol string

// The protocols that have ports in policies.
const (
	TCP  Protocol = "TCP"
	UDP  Protocol = "UDP"
	SCTP Protocol = "SCTP"
)

// PodPort is a port that a container of a pod gave a name.
type PodPort struct {
	Name     string   `json:"name"`
	Protocol Protocol `json:"protocol"`
	Number   uint16   `json:"number"`
}
