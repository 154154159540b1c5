// SPDX-License-Identifier: Apache-2.0

package model

import (
	"net/netip"
	"slices"
)

// Node is a host of the cluster.
type Node struct {
	Name string `json:"name"`
	// Addrs are the node's addresses (InternalIP); the first of each family is used.
	Addrs []netip.Addr `json:"addrs,omitempty"`
	// Public are the addresses that the node publishes instead of those of its underlay (flannel's public-ip and
	// public-ip-overwrite: a node behind NAT); the first of each family is used.
	Public []netip.Addr `json:"public,omitempty"`
	// PodCIDRs are the prefixes of the node's pods; the first of each family is used.
	PodCIDRs    []netip.Prefix    `json:"podCIDRs,omitempty"`
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
	// Published is how the node's pods are reached, as the node publishes it; nil if it publishes nothing.
	Published *Published `json:"published,omitempty"`
	// VTEP is the node's VXLAN tunnel endpoint if Published does not have it: the node's backend is another one, or
	// unknown.
	VTEP VTEPData `json:"vtep,omitzero"`
	// NotReady: the kubelet does not report the node as ready, or has not reported for long.
	NotReady bool `json:"notReady,omitempty"`
	// BGP are the node's own settings of BGP; nil if it has none.
	BGP *NodeBGP `json:"bgp,omitempty"`
	// UnmanagedAddress are addresses outside of all pools and prefixes that the node's pods have brought along.
	Unmanaged []UnmanagedAddress `json:"brought,omitempty"`
}

// VTEPData are a VTEP's parameters in JSON, as those of backend vxlan in Published; empty if the node publishes none.
type VTEPData struct {
	V4 string `json:"v4,omitempty"`
	V6 string `json:"v6,omitempty"`
}

// Published is how a node's pods are reached, as in flannel's node annotations and subnet leases. Flannel's own daemon
// may have written it.
type Published struct {
	// Backend is the backend's type: vxlan, host-gw, wireguard …
	Backend string `json:"backend"`
	// Data and DataV6 are the backend's own parameters in JSON, for IPv4 and for IPv6; empty if it has none.
	Data   string `json:"data,omitempty"`
	DataV6 string `json:"dataV6,omitempty"`
	// Addrs are the node's tunnel addresses (PublicIP, PublicIPv6), at most one for each family. They take precedence over
	// Node.Addrs.
	Addrs []netip.Addr `json:"addrs,omitempty"`
}

// Equal reports whether two nodes publish the same; nil is a node that publishes nothing.
func (p *Published) Equal(o *Published) bool {
	if p == nil || o == nil {
		return p == o
	}
	return p.Backend == o.Backend && p.Data == o.Data && p.DataV6 == o.DataV6 && slices.Equal(p.Addrs, o.Addrs)
}

// Pod is a pod as the network sees it.
type Pod struct {
	Namespace   string `json:"namespace"`
	Name        string `json:"name"`
	UID         string `json:"uid"`
	Node        string `json:"node,omitempty"`
	HostNetwork bool   `json:"hostNetwork,omitempty"`
	// ServiceAccount is the name of the pod's service account; empty if it is not known.
	ServiceAccount string            `json:"serviceAccount,omitempty"`
	Phase          string            `json:"phase,omitempty"`
	IPs            []netip.Addr      `json:"ips,omitempty"`
	Ports          []PodPort         `json:"ports,omitempty"` // named ports only
	Labels         map[string]string `json:"labels,omitempty"`
	Annotations    map[string]string `json:"annotations,omitempty"`
}

// Cluster is a snapshot of the datastore for one node. It is immutable.
type Cluster struct {
	// Self is the name of the node that the snapshot is for.
	Self       string
	Nodes      []Node // sorted by name
	Pods       []Pod  // sorted by namespace and name
	Namespaces []Namespace
	Networks   []NetworkAttachment // sorted by namespace and name
	Pools      []AddressPool       // sorted by name
	Blocks     []AddressBlock      // sorted by prefix
}

// ServiceAccount is a service account of pods.
type ServiceAccount struct {
	Namespace, Name string
	Labels          map[string]string
}

// Namespace is a Kubernetes namespace.
type Namespace struct {
	Name        string            `json:"name"`
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}
