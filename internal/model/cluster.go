// SPDX-License-Identifier: Apache-2.0

package model

import "net/netip"

// Node is a machine of the cluster.
type Node struct {
	Name string `json:"name"`
	// Addrs are the node's own addresses (InternalIP), at most one a family is used.
	Addrs []netip.Addr `json:"addrs,omitempty"`
	// PodCIDRs are the prefixes that the node's pods are numbered from, at most one a family is used.
	PodCIDRs    []netip.Prefix    `json:"podCIDRs,omitempty"`
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
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
}

// Namespace is a Kubernetes namespace.
type Namespace struct {
	Name   string            `json:"name"`
	Labels map[string]string `json:"labels,omitempty"`
}
