// SPDX-License-Identifier: Apache-2.0

package store

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weft-net/weft/api/v1alpha1"
	"github.com/weft-net/weft/internal/model"
)

// AddressClaim returns the object as a claim. Along with an error it returns what could be decoded: the addresses of a
// claim are not to be allocated again because another of its fields is invalid.
func (o Object) AddressClaim() (model.AddressClaim, error) {
	var c struct {
		Metadata struct {
			OwnerReferences []metav1.OwnerReference `json:"ownerReferences"`
		} `json:"metadata"`
		Spec   v1alpha1.AddressClaimSpec   `json:"spec"`
		Status v1alpha1.AddressClaimStatus `json:"status"`
	}
	err := o.decode(&c)
	claim := model.AddressClaim{
		Namespace: o.Key.Namespace, Name: o.Key.Name, Pools: c.Spec.Pools, Requested: c.Spec.Addresses,
		Owned: len(c.Metadata.OwnerReferences) > 0, Addresses: c.Status.Addresses, Node: c.Status.Node,
	}
	if m := c.Spec.VirtualMachine; m != nil {
		claim.VM = model.ClaimedInterface{Name: m.Name, Kind: m.Kind, UID: m.UID, Network: m.Network, IfName: m.Interface}
	}
	return claim, err
}

// NewAddressClaim is a new object with the spec of the claim. Its status is written by WithClaimStatus.
func NewAddressClaim(c model.AddressClaim) (Object, error) {
	spec := v1alpha1.AddressClaimSpec{Pools: c.Pools, Addresses: c.Requested}
	if m := c.VM; m != (model.ClaimedInterface{}) {
		spec.VirtualMachine = &v1alpha1.AddressClaimVM{
			Name: m.Name, Kind: m.Kind, UID: m.UID, Network: m.Network, Interface: m.IfName,
		}
	}
	return Object{}.withSpec(AddressClaims().Key(c.Namespace, c.Name), spec)
}

// WithClaimStatus is the edit that writes into a claim's status which addresses it has, and the node that uses them.
func WithClaimStatus(addresses []string, node string) Edit {
	return func(fields map[string]any) error {
		status, err := child(fields, "status")
		if err != nil {
			return err
		}
		list := make([]any, len(addresses))
		for i, a := range addresses {
			list[i] = a
		}
		status["addresses"], status["node"] = list, node
		return nil
	}
}

// NewAddressReservation is a new object that keeps these addresses from being allocated.
func NewAddressReservation(name, purpose string, addresses []string) (Object, error) {
	return Object{}.withSpec(AddressReservations().Key("", name), v1alpha1.AddressReservationSpec{
		Addresses: addresses, Reason: purpose,
	})
}
