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
// +kubebuilder:printcolumn:name="Exhausted on",type=string,JSONPath=`.status.wanted`
type AddressPool struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +required
	Spec   AddressPoolSpec   `json:"spec,omitempty"`
	Status AddressPoolStatus `json:"status,omitempty"`
}

// AddressPoolSpec is the pool's addresses and how they are allocated.
//
// +kubebuilder:validation:XValidation:rule=`has(self.assignmentMode) == has(oldSelf.assignmentMode)`,message="whether a pool is one of the cluster's network cannot be changed: its addresses may be another network's"
type AddressPoolSpec struct {
	// Regions are the addresses. They must not overlap. A region cannot be changed: add regions, or remove one that has
	// no block.
	// +kubebuilder:validation:MaxItems=1024
	// +listType=map
	// +listMapKey=cidr
	Regions []AddressRegion `json:"regions,omitempty"`
	// CooldownSeconds is how long a released address is not allocated again. 0 means ten seconds, or a minute in pools of Services.
	// +kubebuilder:validation:Minimum=0
	CooldownSeconds int32 `json:"cooldownSeconds,omitempty"`
	// Reserved are addresses that are not allocated to pods.
	Reserved []ReservedAddress `json:"reserved,omitempty"`
	// Excluded are parts of the pool that are not allocated from. weft fills it from AddressReservations.
	Excluded []ExcludedRange `json:"excluded,omitempty"`
	// AssignmentMode makes this a pool of the cluster's network: with Automatic every pod that the selectors match can get
	// addresses, with Manual only pods that request this pool. If it is empty the pool is for networks whose
	// configurations name it, and the fields below have no effect.
	// +kubebuilder:validation:Enum=Automatic;Manual
	AssignmentMode string `json:"assignmentMode,omitempty"`
	// NodeSelector selects the nodes whose pods get addresses without requesting this pool, in Calico's selector syntax:
	// zone == "west". Empty means all.
	// +kubebuilder:validation:MaxLength=4096
	NodeSelector string `json:"nodeSelector,omitempty"`
	// NamespaceSelector selects the pods' namespaces in the same way. Both must match.
	// +kubebuilder:validation:MaxLength=4096
	NamespaceSelector string `json:"namespaceSelector,omitempty"`
	// AllowedUses are the permitted uses: Workload and Tunnel, or LoadBalancer alone. Empty means Workload and Tunnel.
	// +kubebuilder:validation:MaxItems=3
	// +kubebuilder:validation:items:Enum=Workload;Tunnel;LoadBalancer
	AllowedUses []string `json:"allowedUses,omitempty"`
	// Disabled stops allocation; allocated addresses stay allocated.
	Disabled bool `json:"disabled,omitempty"`
	// Encapsulation is how packets reach pods on other nodes.
	Encapsulation *Encapsulation `json:"encapsulation,omitempty"`
	// NATOutgoing masquerades packets to addresses outside all pools.
	NATOutgoing bool `json:"natOutgoing,omitempty"`
	// DisableBGPExport keeps nodes from announcing prefixes of the pool by BGP.
	DisableBGPExport bool `json:"disableBGPExport,omitempty"`
	// MaxBlocksPerNode limits the blocks of the pool per node; 0 means no limit.
	// +kubebuilder:validation:Minimum=0
	MaxBlocksPerNode int32 `json:"maxBlocksPerNode,omitempty"`
}

// Encapsulation is how packets between pods of two nodes are sent.
type Encapsulation struct {
	// Kind is none, vxlan or ipip. ipip is for IPv4 only. The default is network.encapsulation of the agents'
	// configuration.
	// +kubebuilder:validation:Enum=none;vxlan;ipip
	Kind string `json:"kind,omitempty"`
	// Mode is Always (the default), or CrossSubnet: only between nodes in different subnets.
	// +kubebuilder:validation:Enum=Always;CrossSubnet
	Mode string `json:"when,omitempty"`
}

// ExcludedRange is a part of a pool that is not allocated from.
type ExcludedRange struct {
	// CIDR is the range.
	// +kubebuilder:validation:Pattern=`^[0-9a-fA-F:.]+/[0-9]{1,3}$`
	// +kubebuilder:validation:MaxLength=43
	CIDR string `json:"cidr"`
	// Reason describes what it is reserved for.
	Reason string `json:"for,omitempty"`
	// Source is the reservation that it comes from; empty if a user wrote it.
	Source string `json:"by,omitempty"`
}

// AddressPoolStatus is the observed state of a pool.
type AddressPoolStatus struct {
	// Conditions of the pool. Allocatable is true if addresses can be allocated; Consistent, if the last audit found
	// nothing; Exhausted, if a node finds no free address.
	// +listType=map
	// +listMapKey=type
	Conditions []Condition `json:"conditions,omitempty"`
	// ExhaustedOn are the nodes that found the pool exhausted. Each node's agent adds its own node; the others release
	// blocks and addresses that they do not need.
	// +kubebuilder:validation:MaxItems=5000
	// +kubebuilder:validation:items:MaxLength=253
	ExhaustedOn []string `json:"wanted,omitempty"`
}

// Condition is one aspect of an object's state.
type Condition struct {
	// Type is the condition's name.
	Type string `json:"type"`
	// Status is True, False or Unknown.
	// +kubebuilder:validation:Enum=True;False;Unknown
	Status string `json:"status"`
	// Reason is a word for programs: docs/reference/events.md lists them.
	Reason string `json:"reason"`
	// Message is a sentence for users.
	Message string `json:"message"`
	// LastTransitionTime is the last time the condition changed status.
	// +kubebuilder:validation:Format=date-time
	LastTransitionTime string `json:"lastTransitionTime"`
	// ObservedGeneration is the generation of the object that the condition describes.
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
}

// AddressRegion is a part of a pool that is divided into blocks of one size.
//
// +kubebuilder:validation:XValidation:rule=`has(self.blockSize) == has(oldSelf.blockSize) && (!has(self.blockSize) || self.blockSize == oldSelf.blockSize)`,message="the blockSize of a region cannot be changed"
type AddressRegion struct {
	// CIDR is the region's prefix, IPv4 or IPv6.
	// +kubebuilder:validation:Pattern=`^[0-9a-fA-F:.]+/[0-9]{1,3}$`
	// +kubebuilder:validation:MaxLength=43
	CIDR string `json:"cidr"`
	// BlockSize is the prefix length of a block. The default depends on the size of the region.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=128
	BlockSize int32 `json:"blockSize,omitempty"`
}

// ReservedAddress is an address that is in use by another owner.
type ReservedAddress struct {
	// Address is the address.
	// +kubebuilder:validation:Pattern=`^[0-9a-fA-F:.]+$`
	// +kubebuilder:validation:MaxLength=39
	Address string `json:"address"`
	// Owner is "namespace/name" of a pod, or free text.
	Owner string `json:"for,omitempty"`
	// ContainerID is the container of the attachment that has the address, if an attachment has it.
	ContainerID string `json:"containerID,omitempty"`
	// IfName is the interface of that attachment.
	IfName string `json:"ifName,omitempty"`
	// Source is the program that allocated the address; empty if a user wrote it.
	Source string `json:"by,omitempty"`
}

// AddressPoolList is a list of pools.
//
// +kubebuilder:object:root=true
type AddressPoolList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []AddressPool `json:"items"`
}
