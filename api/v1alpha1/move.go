// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// AddressMove is a virtual machine that migrates with its addresses. The agent of the node where it is awaited makes the object
// and deletes it; the agent of the node that it comes from hands over its connections. People have nothing to do with it.
type AddressMove struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec AddressMoveSpec `json:"spec,omitempty"`
}

// AddressMoveSpec is what goes, and where.
type AddressMoveSpec struct {
	// Machine is the virtual machine's name.
	Machine string `json:"machine"`
	// Addresses are those that go with it.
	Addresses []string `json:"addresses"`
	// Target is the node where it is awaited.
	Target string `json:"target"`
	// TargetPod is the pod on the target node that may take the addresses over, where no VirtualMachineInstance says so.
	// It is set by the component that migrates the machine, never by an agent.
	TargetPod string `json:"targetPod,omitempty"`
	// Source is the node where it runs, as soon as that one has answered.
	Source string `json:"source,omitempty"`
	// Connections are those that the source tracks of the machine, compressed.
	Connections []byte `json:"connections,omitempty"`
	// Left tells that the machine does not run on the source any more.
	Left bool `json:"left,omitempty"`
}

// AddressMoveList is a list of moves.
type AddressMoveList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []AddressMove `json:"items"`
}
