// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// AddressReservation excludes addresses from allocation, in all pools that contain them. Allocated addresses stay
// allocated.
//
// +genclient
// +genclient:nonNamespaced
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=addressreservations,scope=Cluster,shortName=wreservation,categories=weft
// +kubebuilder:printcolumn:name=Addresses,type=string,JSONPath=`.spec.addresses`
// +kubebuilder:printcolumn:name=For,type=string,JSONPath=`.spec.for`
type AddressReservation struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +required
	Spec AddressReservationSpec `json:"spec,omitempty"`
}

// AddressReservationSpec lists the reserved addresses.
type AddressReservationSpec struct {
	// Addresses are addresses and prefixes.
	// +kubebuilder:validation:MaxItems=1024
	// +kubebuilder:validation:items:Pattern=`^[0-9a-fA-F:.]+(/[0-9]{1,3})?$`
	// +kubebuilder:validation:items:MaxLength=43
	Addresses []string `json:"addresses,omitempty"`
	// Reason describes what they are reserved for.
	Reason string `json:"for,omitempty"`
}

// AddressReservationList is a list of reservations.
//
// +kubebuilder:object:root=true
type AddressReservationList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []AddressReservation `json:"items"`
}

// AddressClaim is a set of addresses that outlive pods: a pod of the namespace that names the claim in its annotation
// weft.dev/address-claim gets them, one pod at a time. Agents create claims for VMs: the VM's pods get the addresses,
// and a second pod waits for them while the VM migrates.
//
// +genclient
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=addressclaims,scope=Namespaced,shortName=wclaim,categories=weft
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name=Addresses,type=string,JSONPath=`.status.addresses`
// +kubebuilder:printcolumn:name=Node,type=string,JSONPath=`.status.node`
// +kubebuilder:printcolumn:name=VM,type=string,JSONPath=`.spec.virtualMachine.name`
type AddressClaim struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +required
	Spec   AddressClaimSpec   `json:"spec,omitempty"`
	Status AddressClaimStatus `json:"status,omitempty"`
}

// AddressClaimSpec is the requested addresses.
//
// +kubebuilder:validation:XValidation:rule=`self == oldSelf`,message="a claim cannot be changed: delete it, and make another"
type AddressClaimSpec struct {
	// Pools are the pools to allocate from, at most one per address family; empty means the network's pools.
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=200
	Pools []string `json:"pools,omitempty"`
	// Addresses are specific addresses, at most one per address family; empty means any.
	// +kubebuilder:validation:MaxItems=2
	// +kubebuilder:validation:items:Pattern=`^[0-9a-fA-F:.]+$`
	// +kubebuilder:validation:items:MaxLength=39
	Addresses []string `json:"addresses,omitempty"`
	// VirtualMachine is the interface of the VM that the addresses are reserved for. Written by agents.
	VirtualMachine *AddressClaimVM `json:"virtualMachine,omitempty"`
}

// AddressClaimVM is an interface of a VM.
type AddressClaimVM struct {
	// Name is the VM's name, in the claim's namespace.
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// Kind is the kind of the VM's object; empty if there is no object.
	// +kubebuilder:validation:MaxLength=63
	Kind string `json:"kind,omitempty"`
	// UID is the UID of the VM's object.
	// +kubebuilder:validation:MaxLength=63
	UID string `json:"uid,omitempty"`
	// Network is the name of the network.
	// +kubebuilder:validation:MaxLength=253
	Network string `json:"network,omitempty"`
	// Interface is the name of the interface in the pod.
	// +kubebuilder:validation:MaxLength=15
	Interface string `json:"interface,omitempty"`
}

// AddressClaimStatus is the claim's addresses, written by agents, and its conditions, written by the controller.
type AddressClaimStatus struct {
	// Addresses are allocated to the claim until it is deleted.
	Addresses []string `json:"addresses,omitempty"`
	// Node is the node that used them last.
	Node string `json:"node,omitempty"`
	// Conditions of the claim. Consistent is False if the last audit found something; it is absent if no audit ever did.
	// +listType=map
	// +listMapKey=type
	Conditions []Condition `json:"conditions,omitempty"`
}

// AddressClaimList is a list of claims.
//
// +kubebuilder:object:root=true
type AddressClaimList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []AddressClaim `json:"items"`
}
