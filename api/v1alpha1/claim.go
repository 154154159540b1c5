// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// AddressReservation keeps addresses of pools from being given to pods, in whichever pools they are. What pods have
// already they keep.
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

// AddressReservationSpec says which addresses are kept back.
type AddressReservationSpec struct {
	// Addresses are addresses and prefixes.
	// +kubebuilder:validation:MaxItems=1024
	// +kubebuilder:validation:items:Pattern=`^[0-9a-fA-F:.]+(/[0-9]{1,3})?$`
	// +kubebuilder:validation:items:MaxLength=43
	Addresses []string `json:"addresses,omitempty"`
	// For says to people what they are for.
	For string `json:"for,omitempty"`
}

// AddressReservationList is a list of reservations.
//
// +kubebuilder:object:root=true
type AddressReservationList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []AddressReservation `json:"items"`
}

// AddressClaim is addresses that outlive pods: each pod of the namespace that names the claim in its annotation
// weft.dev/address-claim has them, one at a time. Those of virtual machines are made by agents: the pods that a machine
// runs in have them, and a second one stands by while the machine migrates.
//
// +genclient
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=addressclaims,scope=Namespaced,shortName=wclaim,categories=weft
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name=Addresses,type=string,JSONPath=`.status.addresses`
// +kubebuilder:printcolumn:name=Node,type=string,JSONPath=`.status.node`
// +kubebuilder:printcolumn:name=Machine,type=string,JSONPath=`.spec.virtualMachine.name`
type AddressClaim struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +required
	Spec   AddressClaimSpec   `json:"spec,omitempty"`
	Status AddressClaimStatus `json:"status,omitempty"`
}

// AddressClaimSpec says which addresses are wanted.
//
// +kubebuilder:validation:XValidation:rule=`self == oldSelf`,message="a claim cannot be changed: delete it, and make another"
type AddressClaimSpec struct {
	// Pools are the pools that the addresses are taken from, at most one a family; empty leaves it to the network.
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=200
	Pools []string `json:"pools,omitempty"`
	// Addresses are certain addresses that are wanted, at most one a family; empty takes any.
	// +kubebuilder:validation:MaxItems=2
	// +kubebuilder:validation:items:Pattern=`^[0-9a-fA-F:.]+$`
	// +kubebuilder:validation:items:MaxLength=39
	Addresses []string `json:"addresses,omitempty"`
	// VirtualMachine is the interface of a virtual machine that the addresses are promised to. Agents write it.
	VirtualMachine *AddressClaimMachine `json:"virtualMachine,omitempty"`
}

// AddressClaimMachine is an interface of a virtual machine.
type AddressClaimMachine struct {
	// Name is the machine's, in the claim's namespace.
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// Kind is its object's; empty where it has none.
	// +kubebuilder:validation:MaxLength=63
	Kind string `json:"kind,omitempty"`
	// UID is its object's.
	// +kubebuilder:validation:MaxLength=63
	UID string `json:"uid,omitempty"`
	// Network is the name of the network.
	// +kubebuilder:validation:MaxLength=253
	Network string `json:"network,omitempty"`
	// Interface is the name of the interface in the pod.
	// +kubebuilder:validation:MaxLength=15
	Interface string `json:"interface,omitempty"`
}

// AddressClaimStatus is what the claim has. Agents write it.
type AddressClaimStatus struct {
	// Addresses are the claim's, until it is deleted.
	Addresses []string `json:"addresses,omitempty"`
	// Node is where they were used last.
	Node string `json:"node,omitempty"`
}

// AddressClaimList is a list of claims.
//
// +kubebuilder:object:root=true
type AddressClaimList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []AddressClaim `json:"items"`
}
