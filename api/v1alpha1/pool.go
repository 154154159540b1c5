// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// AddressPool is a set of addresses from which nodes claim blocks.
type AddressPool struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec AddressPoolSpec `json:"spec,omitempty"`
}

// AddressPoolSpec says which addresses a pool has, and what is to be known about them.
type AddressPoolSpec struct {
	// Regions are the addresses. They do not overlap, and what is there is not changed: add regions, or take one out of which no
	// block is claimed.
	Regions []AddressRegion `json:"regions,omitempty"`
	// CooldownSeconds is how long an address rests after it was released. 0 is the agents' default of ten seconds.
	CooldownSeconds int32 `json:"cooldownSeconds,omitempty"`
	// Reserved are addresses that are not given to pods.
	Reserved []ReservedAddress `json:"reserved,omitempty"`
	// Wanted are the nodes that found the pool exhausted. Agents write it; the others give back what they can spare.
	Wanted []string `json:"wanted,omitempty"`
}

// AddressRegion is a part of a pool that is cut into blocks of one size.
type AddressRegion struct {
	// CIDR is the region's prefix, IPv4 or IPv6.
	CIDR string `json:"cidr"`
	// BlockSize is the prefix length of a block. It is chosen by the size of the region where it is left out.
	BlockSize int32 `json:"blockSize,omitempty"`
}

// ReservedAddress is an address that somebody else has.
type ReservedAddress struct {
	// Address is the address.
	Address string `json:"address"`
	// For says whose it is: "namespace/name" of a pod, or any words.
	For string `json:"for,omitempty"`
	// ContainerID is the container of the attachment that has the address, where it is one.
	ContainerID string `json:"containerID,omitempty"`
	// IfName is the interface of that attachment.
	IfName string `json:"ifName,omitempty"`
	// By is the program that gave the address; empty for people.
	By string `json:"by,omitempty"`
}

// AddressPoolList is a list of pools.
type AddressPoolList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []AddressPool `json:"items"`
}
