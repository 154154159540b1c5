// SPDX-License-Identifier: Apache-2.0

package model

import "net/netip"

// AddressRequest is what a pod and its namespace request about the pod's addresses. The network's configuration decides
// the rest.
type AddressRequest struct {
	// NamespaceLabels are the labels of the pod's namespace; nil: not known.
	NamespaceLabels map[string]string `json:"namespaceLabels,omitempty"`
	// Pools4 and Pools6 are the only pools to allocate from, by name or CIDR, in this order.
	Pools4 []string `json:"pools4,omitempty"`
	Pools6 []string `json:"pools6,omitempty"`
	// Addrs are the only addresses to allocate: at most one for each family.
	Addrs []netip.Addr `json:"addrs,omitempty"`
	// Families are the families to allocate an address of.
	Families []IPFamily `json:"families,omitempty"`
	// Claim is the AddressClaim with the pod's addresses, "namespace/name".
	Claim string `json:"claim,omitempty"`
	// Use is the purpose of the addresses; empty means a workload.
	Use AddressUse `json:"use,omitempty"`
}

// IPFamily is an IP family, as in the Kubernetes API.
type IPFamily string

// The families.
const (
	IPv4 IPFamily = "IPv4"
	IPv6 IPFamily = "IPv6"
)
