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
// weft.dev/address-claim has them, one at a time.
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
