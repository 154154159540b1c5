// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// AddressBlock is the claim of a node on a part of a pool: that the object exists is the claim. Agents make, change and
// delete these objects; people only read them.
//
// +genclient
// +genclient:nonNamespaced
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=addressblocks,scope=Cluster,shortName=wblock,categories=weft
// +kubebuilder:printcolumn:name=Pool,type=string,JSONPath=`.spec.pool`
// +kubebuilder:printcolumn:name=CIDR,type=string,JSONPath=`.spec.cidr`
// +kubebuilder:printcolumn:name=Node,type=string,JSONPath=`.spec.node`
type AddressBlock struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +required
	Spec AddressBlockSpec `json:"spec,omitempty"`
}

// AddressBlockSpec says who has which addresses.
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
	// Node is the node that has the block.
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`
	// +kubebuilder:validation:MaxLength=253
	Node string `json:"node"`
	// Machine tells that node's machine from another one that runs under the same name.
	Machine string `json:"machine,omitempty"`
	// Claim is a number that is new each time the block is taken into use.
	Claim string `json:"claim"`
	// Asked are addresses that other nodes ask for, with the node and perhaps the IPAMClaim that each is for.
	Asked map[string]string `json:"asked,omitempty"`
	// Ceded are addresses that the node gave away, each with its holder; an empty one is free for the first node that
	// takes it.
	Ceded map[string]string `json:"ceded,omitempty"`
	// Granted are addresses that another node may take, each with that node and the claim in whose name. The controller
	// writes it; the node takes the entry out as it takes the address.
	Granted map[string]string `json:"granted,omitempty"`
	// Orphaned: the node does not exist any more. The controller writes it; any other node may take the block over then.
	Orphaned bool `json:"orphaned,omitempty"`
}

// AddressBlockList is a list of blocks.
//
// +kubebuilder:object:root=true
type AddressBlockList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []AddressBlock `json:"items"`
}
