// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
)

// DeepCopyInto copies the pool into another.
func (in *AddressPool) DeepCopyInto(out *AddressPool) {
	*out = *in
	in.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	in.Spec.DeepCopyInto(&out.Spec)
	in.Status.DeepCopyInto(&out.Status)
}

// DeepCopyInto copies the specification into another.
func (in *AddressPoolSpec) DeepCopyInto(out *AddressPoolSpec) {
	*out = *in
	out.Regions, out.Reserved = slices.Clone(in.Regions), slices.Clone(in.Reserved)
	out.Excluded, out.AllowedUses = slices.Clone(in.Excluded), slices.Clone(in.AllowedUses)
}

// DeepCopyInto copies the status into another.
func (in *AddressPoolStatus) DeepCopyInto(out *AddressPoolStatus) {
	*out = *in
	out.Conditions, out.Wanted = slices.Clone(in.Conditions), slices.Clone(in.Wanted)
}

// DeepCopy is a copy that shares nothing.
func (in *AddressPool) DeepCopy() *AddressPool { return copied(in, (*AddressPool).DeepCopyInto) }

// DeepCopyObject is a copy that shares nothing.
func (in *AddressPool) DeepCopyObject() runtime.Object { return in.DeepCopy() }

// DeepCopyInto copies the list into another.
func (in *AddressPoolList) DeepCopyInto(out *AddressPoolList) {
	*out = *in
	in.ListMeta.DeepCopyInto(&out.ListMeta)
	out.Items = items(in.Items, (*AddressPool).DeepCopyInto)
}

// DeepCopy is a copy that shares nothing.
func (in *AddressPoolList) DeepCopy() *AddressPoolList {
	return copied(in, (*AddressPoolList).DeepCopyInto)
}

// DeepCopyObject is a copy that shares nothing.
func (in *AddressPoolList) DeepCopyObject() runtime.Object { return in.DeepCopy() }

// DeepCopyInto copies the block into another.
func (in *AddressBlock) DeepCopyInto(out *AddressBlock) {
	*out = *in
	in.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	in.Spec.DeepCopyInto(&out.Spec)
}

// DeepCopyInto copies the specification into another.
func (in *AddressBlockSpec) DeepCopyInto(out *AddressBlockSpec) {
	*out = *in
	out.Asked, out.Ceded, out.Granted = maps.Clone(in.Asked), maps.Clone(in.Ceded), maps.Clone(in.Granted)
}

// DeepCopy is a copy that shares nothing.
func (in *AddressBlock) DeepCopy() *AddressBlock { return copied(in, (*AddressBlock).DeepCopyInto) }

// DeepCopyObject is a copy that shares nothing.
func (in *AddressBlock) DeepCopyObject() runtime.Object { return in.DeepCopy() }

// DeepCopyInto copies the list into another.
func (in *AddressBlockList) DeepCopyInto(out *AddressBlockList) {
	*out = *in
	in.ListMeta.DeepCopyInto(&out.ListMeta)
	out.Items = items(in.Items, (*AddressBlock).DeepCopyInto)
}

// DeepCopy is a copy that shares nothing.
func (in *AddressBlockList) DeepCopy() *AddressBlockList {
	return copied(in, (*AddressBlockList).DeepCopyInto)
}

// DeepCopyObject is a copy that shares nothing.
func (in *AddressBlockList) DeepCopyObject() runtime.Object { return in.DeepCopy() }

func copied[T any](in *T, into func(in, out *T)) *T {
	if in == nil {
		return nil
	}
	out := new(T)
	into(in, out)
	return out
}

func items[T any](in []T, into func(in, out *T)) []T {
	if in == nil {
		return nil
	}
	out := make([]T, len(in))
	for i := range in {
		into(&in[i], &out[i])
	}
	return out
}
