// SPDX-License-Identifier: Apache-2.0

package model

import "net/netip"

// AddressWishes are what a pod and its namespace say about the addresses that it is to get. What is not said is left to
// the configuration.
type AddressWishes struct {
	// NamespaceLabels are those of the pod's namespace; nil: they are not known.
	NamespaceLabels map[string]string `json:"namespaceLabels,omitempty"`
	// Pools4 and Pools6 are the only pools to take from, by name or by CIDR, the first that has an address first.
	Pools4 []string `json:"pools4,omitempty"`
	Pools6 []string `json:"pools6,omitempty"`
	// Addrs are the addresses to give, and no others: one of a family at most.
	Addrs []netip.Addr `json:"addrs,omitempty"`
	// Families are the families to give an address of.
	Families []IPFamily `json:"families,omitempty"`
	// Claim is the AddressClaim whose addresses the pod is to get, "namespace/name".
	Claim string `json:"claim,omitempty"`
	// Use is what the addresses are for; empty means a workload.
	Use AddressUse `json:"use,omitempty"`
}

// IPFamily is a family of addresses, in Kubernetes' words.
type IPFamily string

// The families.
const (
	IPv4 IPFamily = "IPv4"
	IPv6 IPFamily = "IPv6"
)
