// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import "k8s.io/apimachinery/pkg/runtime"

// DeepCopyInto copies the request into another.
func (in *AddressPoolRequest) DeepCopyInto(out *AddressPoolRequest) {
	*out = *in
	in.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
}

// DeepCopy is a copy that shares nothing.
func (in *AddressPoolRequest) DeepCopy() *AddressPoolRequest {
	return copied(in, (*AddressPoolRequest).DeepCopyInto)
}

// DeepCopyObject is a copy that shares nothing.
func (in *AddressPoolRequest) DeepCopyObject() runtime.Object { return in.DeepCopy() }

// DeepCopyInto copies the list into another.
func (in *AddressPoolRequestList) DeepCopyInto(out *AddressPoolRequestList) {
	*out = *in
	in.ListMeta.DeepCopyInto(&out.ListMeta)
	out.Items = items(in.Items, (*AddressPoolRequest).DeepCopyInto)
}

// DeepCopy is a copy that shares nothing.
func (in *AddressPoolRequestList) DeepCopy() *AddressPoolRequestList {
	return copied(in, (*AddressPoolRequestList).DeepCopyInto)
}

// DeepCopyObject is a copy that shares nothing.
func (in *AddressPoolRequestList) DeepCopyObject() runtime.Object { return in.DeepCopy() }
