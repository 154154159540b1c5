// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// AddressPoolRequest is a request of a node's agent to the controller, because agents do not write pools. The
// controller carries it out and deletes it. Managed by weft; do not create or edit it.
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

// AddressPoolRequestSpec is what the agent requests.
//
// +kubebuilder:validation:XValidation:rule=`self == oldSelf`,message="a request cannot be changed: delete it, and make another"
type AddressPoolRequestSpec struct {
	// Node is the node of the requesting agent.
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`
	// +kubebuilder:validation:MaxLength=253
	Node string `json:"node"`
	// Pool is the pool to add the addresses to: one that networks' configurations name, never one of the cluster's
	// network. If it is empty, the request is to mirror Calico's pools, because a pod of the cluster's network needs an
	// address.
	// +kubebuilder:validation:MaxLength=200
	Pool string `json:"pool,omitempty"`
	// CIDR is the range to add to the pool, if the pool does not have it.
	// +kubebuilder:validation:Pattern=`^[0-9a-fA-F:.]+/[0-9]{1,3}$`
	// +kubebuilder:validation:MaxLength=43
	CIDR string `json:"cidr,omitempty"`
	// Addresses is the number of usable addresses in it, which determines the size of blocks.
	Addresses int32 `json:"addresses,omitempty"`
	// Network is whereabouts' network_name of the range.
	// +kubebuilder:validation:MaxLength=253
	Network string `json:"network,omitempty"`
	// Claim, "namespace/name", is the claim of a VM, instead of a pool: addresses that are in no pool any more are removed
	// from it.
	// +kubebuilder:validation:MaxLength=317
	Claim string `json:"claim,omitempty"`
	// Address, in the block CIDR of the pool, is to be granted to the node for the claim, whose pod is on the node.
	Address string `json:"address,omitempty"`
	// Pod, "namespace/name", is the pod of the node that names the claim.
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
