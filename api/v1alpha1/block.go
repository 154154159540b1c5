// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// AddressBlock is a part of a pool with an affinity to one node, which allocates its addresses. Managed by weft; do not
// create or edit it.
//
// +genclient
// +genclient:nonNamespaced
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=addressblocks,scope=Cluster,shortName=wblock,categories=weft
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name=Pool,type=string,JSONPath=`.spec.pool`
// +kubebuilder:printcolumn:name=CIDR,type=string,JSONPath=`.spec.cidr`
// +kubebuilder:printcolumn:name=Node,type=string,JSONPath=`.spec.node`
type AddressBlock struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +required
	Spec   AddressBlockSpec   `json:"spec,omitempty"`
	Status AddressBlockStatus `json:"status,omitempty"`
}

// AddressBlockSpec is the block's node, and its addresses that other nodes requested, borrowed or were granted.
//
// +kubebuilder:validation:XValidation:rule=`self.pool == oldSelf.pool && self.cidr == oldSelf.cidr`,message="pool and cidr cannot be changed"
type AddressBlockSpec struct {
	// Pool is the name of the pool.
	// +kubebuilder:validation:MaxLength=200
	Pool string `json:"pool"`
	// CIDR is the block's prefix.
	// +kubebuilder:validation:Pattern=`^[0-9a-fA-F:.]+/[0-9]{1,3}$`
	// +kubebuilder:validation:MaxLength=43
	CIDR string `json:"cidr"`
	// Node is the node that the block has its affinity to.
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`
	// +kubebuilder:validation:MaxLength=253
	Node string `json:"node"`
	// HostID distinguishes that node's host from another one that runs under the same node name.
	HostID string `json:"machine,omitempty"`
	// Claim is a number that changes each time a node claims the block.
	Claim string `json:"claim"`
	// Requested are addresses that other nodes request, each with the node and optionally the IPAMClaim that it is for.
	Requested map[string]string `json:"asked,omitempty"`
	// Lent are addresses that other nodes allocate from, each with its borrower; an empty borrower means the first node
	// that claims it.
	Lent map[string]string `json:"ceded,omitempty"`
	// Granted are addresses that another node may claim, each with that node and the claim that it is for. The
	// controller adds an entry; the node removes it when it claims the address.
	Granted map[string]string `json:"granted,omitempty"`
	// Orphaned is true when the node no longer exists. The controller sets it; any node may then claim the block.
	Orphaned bool `json:"orphaned,omitempty"`
}

// AddressBlockStatus is the observed state of a block. Written by the controller.
type AddressBlockStatus struct {
	// Conditions of the block. Consistent is False if the last audit found something; it is absent if no audit ever did.
	// +listType=map
	// +listMapKey=type
	Conditions []Condition `json:"conditions,omitempty"`
}

// AddressBlockList is a list of blocks.
//
// +kubebuilder:object:root=true
type AddressBlockList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []AddressBlock `json:"items"`
}
