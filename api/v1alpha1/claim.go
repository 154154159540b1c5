// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// AddressReservation keeps addresses of pools from being given to pods, in whichever pools they are. What pods have already
// they keep.
type AddressReservation struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec AddressReservationSpec `json:"spec,omitempty"`
}

// AddressReservationSpec says which addresses are kept back.
type AddressReservationSpec struct {
	// Addresses are addresses and prefixes.
	Addresses []string `json:"addresses,omitempty"`
	// For says to people what they are for.
	For string `json:"for,omitempty"`
}

// AddressReservationList is a list of reservations.
type AddressReservationList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []AddressReservation `json:"items"`
}

// AddressClaim is addresses that outlive pods: each pod of the namespace that names the claim in its annotation
// weft.dev/address-claim has them, one at a time. Those of virtual machines are made by agents: the pods that a machine runs in have
// them, and a second one stands by while the machine migrates.
type AddressClaim struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   AddressClaimSpec   `json:"spec,omitempty"`
	Status AddressClaimStatus `json:"status,omitempty"`
}

// AddressClaimSpec says which addresses are wanted.
type AddressClaimSpec struct {
	// Pools are the pools that the addresses are taken from, at most one a family; empty leaves it to the network.
	Pools []string `json:"pools,omitempty"`
	// Addresses are certain addresses that are wanted, at most one a family; empty takes any.
	Addresses []string `json:"addresses,omitempty"`
	// VirtualMachine is the interface of a virtual machine that the addresses are promised to. Agents write it.
	VirtualMachine *AddressClaimMachine `json:"virtualMachine,omitempty"`
}

// AddressClaimMachine is an interface of a virtual machine.
type AddressClaimMachine struct {
	// Name is the machine's, in the claim's namespace.
	Name string `json:"name"`
	// Kind is its object's; empty where it has none.
	Kind string `json:"kind,omitempty"`
	// UID is its object's.
	UID string `json:"uid,omitempty"`
	// Network is the name of the network.
	Network string `json:"network,omitempty"`
	// Interface is the name of the interface in the pod.
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
type AddressClaimList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []AddressClaim `json:"items"`
}
