// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
)

// DeepCopyInto copies the move into another.
func (in *AddressMove) DeepCopyInto(out *AddressMove) {
	*out = *in
	in.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	in.Spec.DeepCopyInto(&out.Spec)
}

// DeepCopyInto copies the specification into another.
func (in *AddressMoveSpec) DeepCopyInto(out *AddressMoveSpec) {
	*out = *in
	out.Addresses, out.Connections = slices.Clone(in.Addresses), slices.Clone(in.Connections)
}

// DeepCopy is a copy that shares nothing.
func (in *AddressMove) DeepCopy() *AddressMove { return copied(in, (*AddressMove).DeepCopyInto) }

// DeepCopyObject is a copy that shares nothing.
func (in *AddressMove) DeepCopyObject() runtime.Object { return in.DeepCopy() }

// DeepCopyInto copies the list into another.
func (in *AddressMoveList) DeepCopyInto(out *AddressMoveList) {
	*out = *in
	in.ListMeta.DeepCopyInto(&out.ListMeta)
	out.Items = items(in.Items, (*AddressMove).DeepCopyInto)
}

// DeepCopy is a copy that shares nothing.
func (in *AddressMoveList) DeepCopy() *AddressMoveList {
	return copied(in, (*AddressMoveList).DeepCopyInto)
}

// DeepCopyObject is a copy that shares nothing.
func (in *AddressMoveList) DeepCopyObject() runtime.Object { return in.DeepCopy() }
