// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// AddressPool is a set of addresses from which nodes claim blocks.
type AddressPool struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   AddressPoolSpec   `json:"spec,omitempty"`
	Status AddressPoolStatus `json:"status,omitempty"`
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
	// Excluded are parts of the pool of which nothing further is given. weft fills it from AddressReservations.
	Excluded []ExcludedRange `json:"excluded,omitempty"`
	// AssignmentMode makes this a pool of the cluster's network: Automatic gives addresses to every pod that the selectors choose,
	// Manual only to pods that ask for this pool. Without it the pool is for networks whose configurations name it, and the
	// fields below have no meaning.
	AssignmentMode string `json:"assignmentMode,omitempty"`
	// NodeSelector says on which nodes pods get addresses that did not ask for this pool, in Calico's words: zone == "west". Empty
	// means all.
	NodeSelector string `json:"nodeSelector,omitempty"`
	// NamespaceSelector says the same of the pods' namespaces. Both must choose a pod.
	NamespaceSelector string `json:"namespaceSelector,omitempty"`
	// AllowedUses are what the addresses are for: Workload, Tunnel, LoadBalancer. Empty means Workload and Tunnel.
	AllowedUses []string `json:"allowedUses,omitempty"`
	// Disabled: nobody gets further addresses; those that are given stay.
	Disabled bool `json:"disabled,omitempty"`
	// Encapsulation is how packets to pods on other nodes travel.
	Encapsulation Encapsulation `json:"encapsulation,omitempty"`
	// NATOutgoing: packets to addresses outside all pools leave under the node's address.
	NATOutgoing bool `json:"natOutgoing,omitempty"`
	// MaxBlocksPerNode is how many blocks of the pool a node may have; 0 sets no bound.
	MaxBlocksPerNode int32 `json:"maxBlocksPerNode,omitempty"`
}

// Encapsulation is how packets between pods of two nodes travel.
type Encapsulation struct {
	// Kind is none, vxlan or ipip. ipip carries IPv4 only. Left out, packets travel as network.encapsulation in the agents'
	// configuration says.
	Kind string `json:"kind,omitempty"`
	// When is Always, or CrossSubnet: only between nodes in different subnets. Left out it is Always.
	When string `json:"when,omitempty"`
}

// ExcludedRange is a part of a pool that is not given to pods.
type ExcludedRange struct {
	// CIDR is the part.
	CIDR string `json:"cidr"`
	// For says what it is for.
	For string `json:"for,omitempty"`
	// By is the reservation that it comes from; empty for people.
	By string `json:"by,omitempty"`
}

// AddressPoolStatus is what weft says of a pool.
type AddressPoolStatus struct {
	// Conditions are what holds of the pool. Allocatable says whether further addresses can be had of it.
	Conditions []Condition `json:"conditions,omitempty"`
	// Wanted are the nodes that found the pool exhausted. Each node's agent writes that node; the others give back what they can
	// spare.
	Wanted []string `json:"wanted,omitempty"`
}

// Condition is one thing that holds, or does not.
type Condition struct {
	// Type names it.
	Type string `json:"type"`
	// Status is True, False or Unknown.
	Status string `json:"status"`
	// Reason is one word for programs.
	Reason string `json:"reason"`
	// Message is for people.
	Message string `json:"message"`
	// LastTransitionTime is when the status was last another one.
	LastTransitionTime string `json:"lastTransitionTime"`
	// ObservedGeneration is the generation of the object that this was said of.
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
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
