// SPDX-License-Identifier: Apache-2.0

// Package naive is the reference evaluator of network policies: it decides on one packet as the specifications read,
// slowly, from the objects of the API server. Tests compare the compiler with it; it does not depend on the compiler.
package naive

import "net/netip"

// World is the part of a cluster that policies depend on.
type World struct {
	Namespaces map[string]map[string]string // labels by name
	Nodes      map[string]Node
	Pods       []Pod
	Policies   []NetworkPolicy
	Cluster    []ClusterPolicy
	Calico     *Calico // nil: its kinds are not there
}

// Node is a node's labels and addresses.
type Node struct {
	Labels map[string]string
	Addrs  []netip.Addr
}

// Pod is a pod; Done when all its containers have ended.
type Pod struct {
	Namespace, Name, Node string
	Labels                map[string]string
	Addrs                 map[string][]netip.Addr // by network, "" is the cluster's
	HostNetwork, Done     bool
	Account               string // of its service account
	Ports                 []PodPort
}

// PodPort is a port of a container.
type PodPort struct {
	Name, Proto string
	Port        int
}

// Packet is the first packet of a connection; Proto is TCP, UDP, SCTP or ICMP, which has no Port.
type Packet struct {
	Src, Dst netip.Addr
	Proto    string
	Port     int
}

// NetworkPolicy is networking.k8s.io/v1's; with Networks it is k8s.cni.cncf.io/v1beta1's MultiNetworkPolicy for these.
type NetworkPolicy struct {
	Metadata Metadata `json:"metadata"`
	Spec     Spec     `json:"spec"`
	Networks []string `json:"-"`
}

// Metadata is an object's name and labels.
type Metadata struct {
	Name      string `json:"name"`
	Namespace string `json:"namespace,omitempty"`
}

// Spec is a NetworkPolicy's.
type Spec struct {
	PodSelector Selector `json:"podSelector"`
	PolicyTypes []string `json:"policyTypes,omitempty"`
	Ingress     []Rule   `json:"ingress,omitempty"`
	Egress      []Rule   `json:"egress,omitempty"`
}

// Rule has From if it is for ingress, To if it is for egress.
type Rule struct {
	From  []Peer `json:"from,omitempty"`
	To    []Peer `json:"to,omitempty"`
	Ports []Port `json:"ports,omitempty"`
}

// Peer is an IPBlock, or pods.
type Peer struct {
	PodSelector       *Selector `json:"podSelector,omitempty"`
	NamespaceSelector *Selector `json:"namespaceSelector,omitempty"`
	IPBlock           *IPBlock  `json:"ipBlock,omitempty"`
}

// IPBlock is a range of addresses with exceptions.
type IPBlock struct {
	CIDR   string   `json:"cidr"`
	Except []string `json:"except,omitempty"`
}

// Port is nil, an int or a string (the name of a pod's port).
type Port struct {
	Protocol string `json:"protocol,omitempty"`
	Port     any    `json:"port,omitempty"`
	EndPort  int    `json:"endPort,omitempty"`
}

// ClusterPolicy is policy.networking.k8s.io/v1alpha2's ClusterNetworkPolicy.
type ClusterPolicy struct {
	Metadata Metadata    `json:"metadata"`
	Spec     ClusterSpec `json:"spec"`
}

// ClusterSpec is a ClusterPolicy's.
type ClusterSpec struct {
	Tier     string        `json:"tier"`
	Priority int           `json:"priority"`
	Subject  ClusterPeer   `json:"subject"`
	Ingress  []ClusterRule `json:"ingress,omitempty"`
	Egress   []ClusterRule `json:"egress,omitempty"`
}

// ClusterRule has From if it is for ingress, To if it is for egress.
type ClusterRule struct {
	Name      string        `json:"name,omitempty"`
	Action    string        `json:"action"`
	From      []ClusterPeer `json:"from,omitempty"`
	To        []ClusterPeer `json:"to,omitempty"`
	Protocols []Protocol    `json:"protocols,omitempty"`
}

// ClusterPeer has one of its fields.
type ClusterPeer struct {
	Namespaces *Selector `json:"namespaces,omitempty"`
	Pods       *Both     `json:"pods,omitempty"`
	Nodes      *Selector `json:"nodes,omitempty"`
	Networks   []string  `json:"networks,omitempty"`
}

// Both selects pods of namespaces.
type Both struct {
	NamespaceSelector Selector `json:"namespaceSelector"`
	PodSelector       Selector `json:"podSelector"`
}

// Protocol has one of its fields.
type Protocol struct {
	TCP   *ProtocolPort `json:"tcp,omitempty"`
	UDP   *ProtocolPort `json:"udp,omitempty"`
	SCTP  *ProtocolPort `json:"sctp,omitempty"`
	Named string        `json:"destinationNamedPort,omitempty"`
}

// ProtocolPort is all ports of a protocol, or some.
type ProtocolPort struct {
	DestinationPort *Ports `json:"destinationPort,omitempty"`
}

// Ports is a number or a range.
type Ports struct {
	Number int    `json:"number,omitempty"`
	Range  *Range `json:"range,omitempty"`
}

// Range is from Start to End, both included.
type Range struct {
	Start int `json:"start"`
	End   int `json:"end"`
}

// Selector is a label selector.
type Selector struct {
	MatchLabels      map[string]string `json:"matchLabels,omitempty"`
	MatchExpressions []Expression      `json:"matchExpressions,omitempty"`
}

// Expression is one condition: In, NotIn, Exists, DoesNotExist.
type Expression struct {
	Key      string   `json:"key"`
	Operator string   `json:"operator"`
	Values   []string `json:"values,omitempty"`
}

// party is one endpoint of a connection; pod is nil unless it is a pod with a network of its own.
type party struct {
	addr    netip.Addr
	pod     *Pod
	network string
}
