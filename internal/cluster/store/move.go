// SPDX-License-Identifier: Apache-2.0

package store

import (
	"fmt"

	"github.com/weft-net/weft/api/v1alpha1"
	"github.com/weft-net/weft/internal/model"
)

// AddressMoves is the kind of live migrations of VMs with their addresses.
func AddressMoves() Kind { return Kind{Group, "v1alpha1", "AddressMove", "addressmoves", true} }

// AddressMove returns the object as a move.
func (o Object) AddressMove() (model.AddressMove, error) {
	var m struct{ Spec v1alpha1.AddressMoveSpec }
	if err := o.decode(&m); err != nil {
		return model.AddressMove{}, err
	}
	s := m.Spec
	out := model.AddressMove{
		Namespace: o.Key.Namespace, Name: o.Key.Name, VM: s.VM, Target: s.Target, TargetPod: s.TargetPod,
		Source: s.Source, Connections: s.Connections, Departed: s.Departed,
	}
	if s.Target == "" || len(s.Addresses) == 0 {
		return out, o.errorf("delete it; weft makes these objects itself", "spec names no target or no address")
	}
	for i, text := range s.Addresses {
		a, err := o.addr(fmt.Sprintf("spec.addresses[%d]", i), text)
		if err != nil {
			return out, err
		}
		out.Addrs = append(out.Addrs, a)
	}
	return out, nil
}

// AddressMoveObject returns o, or a new object, with the content of the move.
func AddressMoveObject(o Object, m model.AddressMove) (Object, error) {
	s := v1alpha1.AddressMoveSpec{
		VM: m.VM, Target: m.Target, TargetPod: m.TargetPod, Source: m.Source, Connections: m.Connections,
		Departed: m.Departed,
	}
	for _, a := range m.Addrs {
		s.Addresses = append(s.Addresses, a.String())
	}
	return o.withSpec(AddressMoves().Key(m.Namespace, m.Name), s, "machine", "addresses", "target", "targetPod", "source",
		"connections", "left")
}
