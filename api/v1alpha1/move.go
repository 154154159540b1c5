// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// AddressMove is a virtual machine that migrates with its addresses. The agent of the node where it is awaited makes
// the object and deletes it; the agent of the node that it comes from hands over its connections. People have nothing
// to do with it.
//
// +genclient
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=addressmoves,scope=Namespaced,shortName=wmove,categories=weft
// +kubebuilder:printcolumn:name=Machine,type=string,JSONPath=`.spec.machine`
// +kubebuilder:printcolumn:name=Addresses,type=string,JSONPath=`.spec.addresses`
// +kubebuilder:printcolumn:name=From,type=string,JSONPath=`.spec.source`
// +kubebuilder:printcolumn:name=To,type=string,JSONPath=`.spec.target`
type AddressMove struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +required
	Spec AddressMoveSpec `json:"spec,omitempty"`
}

// AddressMoveSpec is what goes, and where.
//
// +kubebuilder:validation:XValidation:rule=`self.machine == oldSelf.machine && self.addresses == oldSelf.addresses && self.target == oldSelf.target`,message="what moves, and where, cannot be changed"
type AddressMoveSpec struct {
	// Machine is the virtual machine's name.
	// +kubebuilder:validation:MaxLength=253
	Machine string `json:"machine"`
	// Addresses are those that go with it.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:Pattern=`^[0-9a-fA-F:.]+$`
	// +kubebuilder:validation:items:MaxLength=39
	Addresses []string `json:"addresses"`
	// Target is the node where it is awaited.
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`
	// +kubebuilder:validation:MaxLength=253
	Target string `json:"target"`
	// TargetPod is the pod on the target node that may take the addresses over, where no VirtualMachineInstance says so.
	// It is set by the component that migrates the machine, never by an agent.
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`
	// +kubebuilder:validation:MaxLength=253
	TargetPod string `json:"targetPod,omitempty"`
	// Source is the node where it runs, as soon as that one has answered.
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`
	// +kubebuilder:validation:MaxLength=253
	Source string `json:"source,omitempty"`
	// Connections are those that the source tracks of the machine, compressed.
	// +kubebuilder:validation:MaxLength=1048576
	Connections []byte `json:"connections,omitempty"`
	// Left tells that the machine does not run on the source any more.
	Left bool `json:"left,omitempty"`
}

// AddressMoveList is a list of moves.
//
// +kubebuilder:object:root=true
type AddressMoveList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []AddressMove `json:"items"`
}
