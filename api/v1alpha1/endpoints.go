// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// NodeEndpoints lists the interfaces of a node's pods and their addresses. The node's agent writes it after each ADD, so
// that other nodes' network policies know a pod before the kubelet reports it. The object has the node's name. Managed
// by weft; do not create or edit it.
//
// +genclient
// +genclient:nonNamespaced
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=nodeendpoints,scope=Cluster,shortName=wendpoints,categories=weft
// +kubebuilder:printcolumn:name=Pods,type=string,JSONPath=`.spec.endpoints[*].pod`
type NodeEndpoints struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +required
	Spec NodeEndpointsSpec `json:"spec,omitempty"`
}

// NodeEndpointsSpec lists the interfaces of a node's pods.
type NodeEndpointsSpec struct {
	// Endpoints are the interfaces.
	// +kubebuilder:validation:MaxItems=4096
	Endpoints []Endpoint `json:"endpoints,omitempty"`
}

// Endpoint is an interface of a pod.
type Endpoint struct {
	// Namespace is the pod's namespace.
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace"`
	// Pod is the pod's name.
	// +kubebuilder:validation:MaxLength=253
	Pod string `json:"pod"`
	// UID is the pod's UID.
	// +kubebuilder:validation:MaxLength=64
	UID string `json:"uid,omitempty"`
	// Network is the NetworkAttachmentDefinition, as namespace/name; empty is the cluster's network.
	// +kubebuilder:validation:MaxLength=317
	Network string `json:"network,omitempty"`
	// Interface is the interface's name in the pod.
	// +kubebuilder:validation:MaxLength=15
	Interface string `json:"interface"`
	// Addresses are the interface's addresses.
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:Pattern=`^[0-9a-fA-F:.]+$`
	// +kubebuilder:validation:items:MaxLength=39
	Addresses []string `json:"addresses,omitempty"`
	// Container reports that the interface is one of a container without a Pod object, such as Docker's. Pod is then a
	// name that weft chose.
	Container bool `json:"container,omitempty"`
	// Labels are the labels of such a container.
	// +kubebuilder:validation:MaxProperties=256
	Labels map[string]string `json:"labels,omitempty"`
}

// NodeEndpointsList is a list of nodes' endpoints.
//
// +kubebuilder:object:root=true
type NodeEndpointsList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []NodeEndpoints `json:"items"`
}
