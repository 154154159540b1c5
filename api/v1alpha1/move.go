// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// AddressMove is the migration of a VM's addresses to another node. The target node's agent creates and deletes it; the
// source node's agent adds the VM's connections. Managed by weft; do not create or edit it.
//
// +genclient
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=addressmoves,scope=Namespaced,shortName=wmove,categories=weft
// +kubebuilder:printcolumn:name=VM,type=string,JSONPath=`.spec.machine`
// +kubebuilder:printcolumn:name=Addresses,type=string,JSONPath=`.spec.addresses`
// +kubebuilder:printcolumn:name=From,type=string,JSONPath=`.spec.source`
// +kubebuilder:printcolumn:name=To,type=string,JSONPath=`.spec.target`
type AddressMove struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +required
	Spec AddressMoveSpec `json:"spec,omitempty"`
}

// AddressMoveSpec is what migrates, and to which node.
//
// +kubebuilder:validation:XValidation:rule=`self.machine == oldSelf.machine && self.addresses == oldSelf.addresses && self.target == oldSelf.target`,message="what moves, and where, cannot be changed"
type AddressMoveSpec struct {
	// VM is the VM's name.
	// +kubebuilder:validation:MaxLength=253
	VM string `json:"machine"`
	// Addresses are the VM's addresses.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:Pattern=`^[0-9a-fA-F:.]+$`
	// +kubebuilder:validation:items:MaxLength=39
	Addresses []string `json:"addresses"`
	// Target is the node that the VM migrates to.
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`
	// +kubebuilder:validation:MaxLength=253
	Target string `json:"target"`
	// TargetPod is the pod on the target node that may take over the addresses, if no VirtualMachineInstance names it. It
	// is set by the component that migrates the VM, never by an agent.
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`
	// +kubebuilder:validation:MaxLength=253
	TargetPod string `json:"targetPod,omitempty"`
	// Source is the node that the VM runs on, once that node's agent has answered.
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`
	// +kubebuilder:validation:MaxLength=253
	Source string `json:"source,omitempty"`
	// Connections are the conntrack entries of the VM on the source node, compressed.
	// +kubebuilder:validation:MaxLength=1048576
	Connections []byte `json:"connections,omitempty"`
	// Departed is true when the VM no longer runs on the source node.
	Departed bool `json:"left,omitempty"`
}

// AddressMoveList is a list of moves.
//
// +kubebuilder:object:root=true
type AddressMoveList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []AddressMove `json:"items"`
}
