// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// AddressPoolRequest is what a node's agent asks the controller for: agents do not write pools. The controller does it,
// and deletes the request.
//
// +genclient
// +genclient:nonNamespaced
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=addresspoolrequests,scope=Cluster,shortName=wrequest,categories=weft
// +kubebuilder:printcolumn:name=Node,type=string,JSONPath=`.spec.node`
// +kubebuilder:printcolumn:name=Pool,type=string,JSONPath=`.spec.pool`
// +kubebuilder:printcolumn:name=CIDR,type=string,JSONPath=`.spec.cidr`
type AddressPoolRequest struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +required
	Spec AddressPoolRequestSpec `json:"spec,omitempty"`
}

// AddressPoolRequestSpec says what is asked for.
//
// +kubebuilder:validation:XValidation:rule=`self == oldSelf`,message="a request cannot be changed: delete it, and make another"
type AddressPoolRequestSpec struct {
	// Node is the node whose agent asks.
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`
	// +kubebuilder:validation:MaxLength=253
	Node string `json:"node"`
	// Pool is the pool that is to have the addresses: one that networks' configurations name, never one of the cluster's
	// network. Without it, Calico's pools are to become pools: a pod of the cluster's network has asked for an address.
	// +kubebuilder:validation:MaxLength=200
	Pool string `json:"pool,omitempty"`
	// CIDR is the range that is added to the pool where it does not have it.
	// +kubebuilder:validation:Pattern=`^[0-9a-fA-F:.]+/[0-9]{1,3}$`
	// +kubebuilder:validation:MaxLength=43
	CIDR string `json:"cidr,omitempty"`
	// Addresses is how many addresses of it are for use; the size of blocks goes by that.
	Addresses int32 `json:"addresses,omitempty"`
	// Network is whereabouts' network_name of the range.
	// +kubebuilder:validation:MaxLength=253
	Network string `json:"network,omitempty"`
	// Claim, "namespace/name", is the claim of a virtual machine, in the place of a pool: addresses that no pool gives any
	// more are taken out of it.
	// +kubebuilder:validation:MaxLength=317
	Claim string `json:"claim,omitempty"`
	// Address, of the block CIDR of the pool, is to be granted to the node in the name of the claim, which goes to where
	// its pod is.
	Address string `json:"address,omitempty"`
	// Pod, "namespace/name", is the pod of the node that carries the claim.
	Pod string `json:"pod,omitempty"`
	// ClaimKind is the claim's kind: IPAMClaim, or empty for an AddressClaim.
	ClaimKind string `json:"claimKind,omitempty"`
}

// AddressPoolRequestList is a list of requests.
//
// +kubebuilder:object:root=true
type AddressPoolRequestList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []AddressPoolRequest `json:"items"`
}
