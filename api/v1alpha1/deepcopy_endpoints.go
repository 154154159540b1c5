// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
)

// DeepCopyInto copies the endpoints into others.
func (in *NodeEndpoints) DeepCopyInto(out *NodeEndpoints) {
	*out = *in
	in.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	in.Spec.DeepCopyInto(&out.Spec)
}

// DeepCopyInto copies the specification into another.
func (in *NodeEndpointsSpec) DeepCopyInto(out *NodeEndpointsSpec) {
	*out = *in
	out.Endpoints = items(in.Endpoints, (*Endpoint).DeepCopyInto)
}

// DeepCopyInto copies the endpoint into another.
func (in *Endpoint) DeepCopyInto(out *Endpoint) {
	*out = *in
	out.Addresses = slices.Clone(in.Addresses)
}

// DeepCopy is a copy that shares nothing.
func (in *NodeEndpoints) DeepCopy() *NodeEndpoints {
	return copied(in, (*NodeEndpoints).DeepCopyInto)
}

// DeepCopyObject is a copy that shares nothing.
func (in *NodeEndpoints) DeepCopyObject() runtime.Object { return in.DeepCopy() }

// DeepCopyInto copies the list into another.
func (in *NodeEndpointsList) DeepCopyInto(out *NodeEndpointsList) {
	*out = *in
	in.ListMeta.DeepCopyInto(&out.ListMeta)
	out.Items = items(in.Items, (*NodeEndpoints).DeepCopyInto)
}

// DeepCopy is a copy that shares nothing.
func (in *NodeEndpointsList) DeepCopy() *NodeEndpointsList {
	return copied(in, (*NodeEndpointsList).DeepCopyInto)
}

// DeepCopyObject is a copy that shares nothing.
func (in *NodeEndpointsList) DeepCopyObject() runtime.Object { return in.DeepCopy() }
