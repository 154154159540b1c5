// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// NodeEndpoints is which interfaces a node's pods have, and with which addresses. The node's agent writes it right after each
// ADD, so that others' network policies know a pod before the kubelet tells of it. The object has the node's name.
type NodeEndpoints struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec NodeEndpointsSpec `json:"spec,omitempty"`
}

// NodeEndpointsSpec is the interfaces of a node's pods.
type NodeEndpointsSpec struct {
	// Endpoints are the interfaces.
	Endpoints []Endpoint `json:"endpoints,omitempty"`
}

// Endpoint is an interface of a pod.
type Endpoint struct {
	// Namespace is the pod's.
	Namespace string `json:"namespace"`
	// Pod is the pod's name.
	Pod string `json:"pod"`
	// UID is the pod's.
	UID string `json:"uid,omitempty"`
	// Network is the NetworkAttachmentDefinition, as namespace/name; empty is the cluster's network.
	Network string `json:"network,omitempty"`
	// Interface is the interface's name in the pod.
	Interface string `json:"interface"`
	// Addresses are those of the interface.
	Addresses []string `json:"addresses,omitempty"`
}

// NodeEndpointsList is a list of nodes' endpoints.
type NodeEndpointsList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []NodeEndpoints `json:"items"`
}
