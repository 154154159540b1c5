// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// FlowListener is where a node's agent serves flows over TLS (observe.listen), and the hash of its key: weft observe
// accepts no other key there. The node's agent writes it when it starts. The object has the node's name, and is deleted
// with the Node. Managed by weft; do not create or edit it.
//
// +genclient
// +genclient:nonNamespaced
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=flowlisteners,scope=Cluster,shortName=wlistener,categories=weft
// +kubebuilder:printcolumn:name=Address,type=string,JSONPath=`.spec.address`
type FlowListener struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +required
	Spec FlowListenerSpec `json:"spec,omitempty"`
}

// FlowListenerSpec is where an agent serves flows, and the hash of its key.
type FlowListenerSpec struct {
	// Address is HOST:PORT; without a host it is an address of the node.
	// +kubebuilder:validation:MaxLength=261
	Address string `json:"address"`
	// Key is the base64 of the SHA-256 of the public key (SubjectPublicKeyInfo), with which the agent identifies itself.
	// +kubebuilder:validation:Pattern=`^[0-9A-Za-z+/]{43}=$`
	Key string `json:"key"`
}

// FlowListenerList is a list of listeners.
//
// +kubebuilder:object:root=true
type FlowListenerList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []FlowListener `json:"items"`
}
