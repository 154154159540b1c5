// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// AddressPool is a set of addresses from which nodes claim blocks.
//
// +genclient
// +genclient:nonNamespaced
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=addresspools,scope=Cluster,shortName=wpool,categories=weft
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name=Regions,type=string,JSONPath=`.spec.regions[*].cidr`
// +kubebuilder:printcolumn:name=Mode,type=string,JSONPath=`.spec.assignmentMode`
// +kubebuilder:printcolumn:name=Encapsulation,type=string,JSONPath=`.spec.encapsulation.kind`
// +kubebuilder:printcolumn:name=Allocatable,type=string,JSONPath=`.status.conditions[?(@.type=="Allocatable")].status`
// +kubebuilder:printcolumn:name="Wanted by",type=string,JSONPath=`.status.wanted`
type AddressPool struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +required
	Spec   AddressPoolSpec   `json:"spec,omitempty"`
	Status AddressPoolStatus `json:"status,omitempty"`
}

// AddressPoolSpec says which addresses a pool has, and what is to be known about them.
//
// +kubebuilder:validation:XValidation:rule=`has(self.assignmentMode) == has(oldSelf.assignmentMode)`,message="whether a pool is one of the cluster's network cannot be changed: its addresses may be another network's"
type AddressPoolSpec struct {
	// Regions are the addresses. They do not overlap, and what is there is not changed: add regions, or take one out of
	// which no block is claimed.
	// +kubebuilder:validation:MaxItems=1024
	// +listType=map
	// +listMapKey=cidr
	Regions []AddressRegion `json:"regions,omitempty"`
	// CooldownSeconds is how long an address rests after it was released. 0 is the agents' default of ten seconds.
	// +kubebuilder:validation:Minimum=0
	CooldownSeconds int32 `json:"cooldownSeconds,omitempty"`
	// Reserved are addresses that are not given to pods.
	Reserved []ReservedAddress `json:"reserved,omitempty"`
	// Excluded are parts of the pool of which nothing further is given. weft fills it from AddressReservations.
	Excluded []ExcludedRange `json:"excluded,omitempty"`
	// AssignmentMode makes this a pool of the cluster's network: Automatic gives addresses to every pod that the selectors
	// choose, Manual only to pods that ask for this pool. Without it the pool is for networks whose configurations name
	// it, and the fields below have no meaning.
	// +kubebuilder:validation:Enum=Automatic;Manual
	AssignmentMode string `json:"assignmentMode,omitempty"`
	// NodeSelector says on which nodes pods get addresses that did not ask for this pool, in Calico's words: zone ==
	// "west". Empty means all.
	// +kubebuilder:validation:MaxLength=4096
	NodeSelector string `json:"nodeSelector,omitempty"`
	// NamespaceSelector says the same of the pods' namespaces. Both must choose a pod.
	// +kubebuilder:validation:MaxLength=4096
	NamespaceSelector string `json:"namespaceSelector,omitempty"`
	// AllowedUses are what the addresses are for: Workload, Tunnel, LoadBalancer. Empty means Workload and Tunnel.
	// +kubebuilder:validation:MaxItems=3
	// +kubebuilder:validation:items:Enum=Workload;Tunnel;LoadBalancer
	AllowedUses []string `json:"allowedUses,omitempty"`
	// Disabled: nobody gets further addresses; those that are given stay.
	Disabled bool `json:"disabled,omitempty"`
	// Encapsulation is how packets to pods on other nodes travel.
	Encapsulation *Encapsulation `json:"encapsulation,omitempty"`
	// NATOutgoing: packets to addresses outside all pools leave under the node's address.
	NATOutgoing bool `json:"natOutgoing,omitempty"`
	// MaxBlocksPerNode is how many blocks of the pool a node may have; 0 sets no bound.
	// +kubebuilder:validation:Minimum=0
	MaxBlocksPerNode int32 `json:"maxBlocksPerNode,omitempty"`
}

// Encapsulation is how packets between pods of two nodes travel.
type Encapsulation struct {
	// Kind is none, vxlan or ipip. ipip carries IPv4 only. Left out, packets travel as network.encapsulation in the
	// agents' configuration says.
	// +kubebuilder:validation:Enum=none;vxlan;ipip
	Kind string `json:"kind,omitempty"`
	// When is Always, or CrossSubnet: only between nodes in different subnets. Left out it is Always.
	// +kubebuilder:validation:Enum=Always;CrossSubnet
	When string `json:"when,omitempty"`
}

// ExcludedRange is a part of a pool that is not given to pods.
type ExcludedRange struct {
	// CIDR is the part.
	// +kubebuilder:validation:Pattern=`^[0-9a-fA-F:.]+/[0-9]{1,3}$`
	// +kubebuilder:validation:MaxLength=43
	CIDR string `json:"cidr"`
	// For says what it is for.
	For string `json:"for,omitempty"`
	// By is the reservation that it comes from; empty for people.
	By string `json:"by,omitempty"`
}

// AddressPoolStatus is what weft says of a pool.
type AddressPoolStatus struct {
	// Conditions are what holds of the pool. Allocatable says whether further addresses can be had of it.
	// +listType=map
	// +listMapKey=type
	Conditions []Condition `json:"conditions,omitempty"`
	// Wanted are the nodes that found the pool exhausted. Each node's agent writes that node; the others give back what
	// they can spare.
	// +kubebuilder:validation:MaxItems=5000
	// +kubebuilder:validation:items:MaxLength=253
	Wanted []string `json:"wanted,omitempty"`
}

// Condition is one thing that holds, or does not.
type Condition struct {
	// Type names it.
	Type string `json:"type"`
	// Status is True, False or Unknown.
	// +kubebuilder:validation:Enum=True;False;Unknown
	Status string `json:"status"`
	// Reason is one word for programs.
	Reason string `json:"reason"`
	// Message is for people.
	Message string `json:"message"`
	// LastTransitionTime is when the status was last another one.
	// +kubebuilder:validation:Format=date-time
	LastTransitionTime string `json:"lastTransitionTime"`
	// ObservedGeneration is the generation of the object that this was said of.
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
}

// AddressRegion is a part of a pool that is cut into blocks of one size.
//
// +kubebuilder:validation:XValidation:rule=`has(self.blockSize) == has(oldSelf.blockSize) && (!has(self.blockSize) || self.blockSize == oldSelf.blockSize)`,message="the blockSize of a region cannot be changed"
type AddressRegion struct {
	// CIDR is the region's prefix, IPv4 or IPv6.
	// +kubebuilder:validation:Pattern=`^[0-9a-fA-F:.]+/[0-9]{1,3}$`
	// +kubebuilder:validation:MaxLength=43
	CIDR string `json:"cidr"`
	// BlockSize is the prefix length of a block. It is chosen by the size of the region where it is left out.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=128
	BlockSize int32 `json:"blockSize,omitempty"`
}

// ReservedAddress is an address that somebody else has.
type ReservedAddress struct {
	// Address is the address.
	// +kubebuilder:validation:Pattern=`^[0-9a-fA-F:.]+$`
	// +kubebuilder:validation:MaxLength=39
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
//
// +kubebuilder:object:root=true
type AddressPoolList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []AddressPool `json:"items"`
}
