// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
)

// DeepCopyInto copies the reservation into another.
func (in *AddressReservation) DeepCopyInto(out *AddressReservation) {
	*out = *in
	in.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	in.Spec.DeepCopyInto(&out.Spec)
}

// DeepCopyInto copies the specification into another.
func (in *AddressReservationSpec) DeepCopyInto(out *AddressReservationSpec) {
	*out = *in
	out.Addresses = slices.Clone(in.Addresses)
}

// DeepCopy is a copy that shares nothing.
func (in *AddressReservation) DeepCopy() *AddressReservation {
	return copied(in, (*AddressReservation).DeepCopyInto)
}

// DeepCopyObject is a copy that shares nothing.
func (in *AddressReservation) DeepCopyObject() runtime.Object { return in.DeepCopy() }

// DeepCopyInto copies the list into another.
func (in *AddressReservationList) DeepCopyInto(out *AddressReservationList) {
	*out = *in
	in.ListMeta.DeepCopyInto(&out.ListMeta)
	out.Items = items(in.Items, (*AddressReservation).DeepCopyInto)
}

// DeepCopy is a copy that shares nothing.
func (in *AddressReservationList) DeepCopy() *AddressReservationList {
	return copied(in, (*AddressReservationList).DeepCopyInto)
}

// DeepCopyObject is a copy that shares nothing.
func (in *AddressReservationList) DeepCopyObject() runtime.Object { return in.DeepCopy() }

// DeepCopyInto copies the claim into another.
func (in *AddressClaim) DeepCopyInto(out *AddressClaim) {
	*out = *in
	in.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	in.Spec.DeepCopyInto(&out.Spec)
	in.Status.DeepCopyInto(&out.Status)
}

// DeepCopyInto copies the specification into another.
func (in *AddressClaimSpec) DeepCopyInto(out *AddressClaimSpec) {
	*out = *in
	out.Pools, out.Addresses = slices.Clone(in.Pools), slices.Clone(in.Addresses)
	if in.VirtualMachine != nil {
		machine := *in.VirtualMachine
		out.VirtualMachine = &machine
	}
}

// DeepCopyInto copies the status into another.
func (in *AddressClaimStatus) DeepCopyInto(out *AddressClaimStatus) {
	*out = *in
	out.Addresses = slices.Clone(in.Addresses)
}

// DeepCopy is a copy that shares nothing.
func (in *AddressClaim) DeepCopy() *AddressClaim {
	return copied(in, (*AddressClaim).DeepCopyInto)
}

// DeepCopyObject is a copy that shares nothing.
func (in *AddressClaim) DeepCopyObject() runtime.Object { return in.DeepCopy() }

// DeepCopyInto copies the list into another.
func (in *AddressClaimList) DeepCopyInto(out *AddressClaimList) {
	*out = *in
	in.ListMeta.DeepCopyInto(&out.ListMeta)
	out.Items = items(in.Items, (*AddressClaim).DeepCopyInto)
}

// DeepCopy is a copy that shares nothing.
func (in *AddressClaimList) DeepCopy() *AddressClaimList {
	return copied(in, (*AddressClaimList).DeepCopyInto)
}

// DeepCopyObject is a copy that shares nothing.
func (in *AddressClaimList) DeepCopyObject() runtime.Object { return in.DeepCopy() }
