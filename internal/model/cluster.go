// SPDX-License-Identifier: Apache-2.0

package model

import (
	"net/netip"
	"slices"
)

// Node is a machine of the cluster.
type Node struct {
	Name string `json:"name"`
	// Addrs are the node's own addresses (InternalIP), at most one a family is used.
	Addrs []netip.Addr `json:"addrs,omitempty"`
	// Public are the addresses that the node is to publish instead of those of its underlay (flannel's public-ip and
	// public-ip-overwrite: a node behind address translation), at most one a family is used.
	Public []netip.Addr `json:"public,omitempty"`
	// PodCIDRs are the prefixes that the node's pods are numbered from, at most one a family is used.
	PodCIDRs    []netip.Prefix    `json:"podCIDRs,omitempty"`
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
	// Published is what the node says of how its pods are reached; nil when it says nothing.
	Published *Published `json:"published,omitempty"`
	// Vtep is what the node says of its end of VXLAN tunnels where Published does not: its own back end is another one, or
	// the rest is not told.
	Vtep VtepWords `json:"vtep,omitzero"`
	// Brought are addresses outside of all pools and prefixes that the node's pods have brought along.
	Brought []Brought `json:"brought,omitempty"`
}

// VtepWords are in JSON, as vxlan's own in Published; empty where the node says nothing.
type VtepWords struct {
	V4 string `json:"v4,omitempty"`
	V6 string `json:"v6,omitempty"`
}

// Published is what a node says of how its pods are reached, as flannel's node annotations and subnet leases do,
// whoever wrote them.
type Published struct {
	// Backend is the back end's type: vxlan, host-gw, wireguard …
	Backend string `json:"backend"`
	// Data and DataV6 are the back end's own words in JSON, for its IPv4 and its IPv6 side; empty where it has none.
	Data   string `json:"data,omitempty"`
	DataV6 string `json:"dataV6,omitempty"`
	// Addrs are where the node's end of a tunnel is found (PublicIP, PublicIPv6), at most one a family. They come before
	// Node.Addrs.
	Addrs []netip.Addr `json:"addrs,omitempty"`
}

// Equal tells whether two nodes say the same; nil is a node that says nothing.
func (p *Published) Equal(o *Published) bool {
	if p == nil || o == nil {
		return p == o
	}
	return p.Backend == o.Backend && p.Data == o.Data && p.DataV6 == o.DataV6 && slices.Equal(p.Addrs, o.Addrs)
}

// Pod is a pod as the network sees it.
type Pod struct {
	Namespace   string            `json:"namespace"`
	Name        string            `json:"name"`
	UID         string            `json:"uid"`
	Node        string            `json:"node,omitempty"`
	HostNetwork bool              `json:"hostNetwork,omitempty"`
	Phase       string            `json:"phase,omitempty"`
	IPs         []netip.Addr      `json:"ips,omitempty"`
	Ports       []PodPort         `json:"ports,omitempty"` // that have names
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

// Cluster is a snapshot of what a node knows. It is never changed after it was handed out.
type Cluster struct {
	// Self is the name of the node this snapshot was made for.
	Self       string
	Nodes      []Node // sorted by name
	Pods       []Pod  // sorted by namespace and name
	Namespaces []Namespace
	Networks   []NetworkAttachment // sorted by namespace and name
	Pools      []AddressPool       // sorted by name
	Blocks     []AddressBlock      // sorted by prefix
}

// Namespace is a Kubernetes namespace.
type Namespace struct {
	Name        string            `json:"name"`
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}
