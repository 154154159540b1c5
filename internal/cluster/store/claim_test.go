// SPDX-License-Identifier: Apache-2.0

package store

import (
	"reflect"
	"testing"

	"github.com/weft-net/weft/internal/model"
)

func TestAddressClaimRoundTrip(t *testing.T) {
	want := model.AddressClaim{
		Namespace: "vms", Name: "vm-db", Pools: []string{"pods"}, Requested: []string{"10.1.0.5"},
		VM: model.ClaimedInterface{Name: "db", Kind: "VirtualMachine", UID: "u1", Network: "pods", IfName: "eth0"},
	}
	o, err := NewAddressClaim(want)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := o.AddressClaim(); err != nil || !reflect.DeepEqual(got, want) {
		t.Fatalf("AddressClaim() = %+v, %v, want %+v", got, err, want)
	}
	owner, err := NewObject(
		[]byte(
			`{"apiVersion":"kubevirt.io/v1","kind":"VirtualMachine","metadata":{"namespace":"vms","name":"db","uid":"u1"}}`,
		),
	)
	if err != nil || owner.UID() != "u1" {
		t.Fatalf("UID() = %q, %v", owner.UID(), err)
	}
	if o, err = o.OwnedBy(owner); err == nil {
		o, err = o.Edited(WithClaimStatus([]string{"10.1.0.5", "fd00::5"}, "a"))
	}
	if err != nil {
		t.Fatal(err)
	}
	want.Owned, want.Addresses, want.Node = true, []string{"10.1.0.5", "fd00::5"}, "a"
	if got, err := o.AddressClaim(); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("AddressClaim() = %+v, %v, want %+v", got, err, want)
	}
}

// The addresses of a claim must not be allocated again because something else in it is invalid.
func TestInvalidAddressClaimKeepsItsAddresses(t *testing.T) {
	o, err := NewObject(
		[]byte(`{"apiVersion":"weft.dev/v1alpha1","kind":"AddressClaim","metadata":{"namespace":"a","name":"b"},
		"spec":{"pools":"one"},"status":{"addresses":["10.1.0.5"],"node":"n"}}`))
	if err != nil {
		t.Fatal(err)
	}
	c, err := o.AddressClaim()
	if err == nil {
		t.Error("spec.pools is no list: no error")
	}
	if !reflect.DeepEqual(c.Addresses, []string{"10.1.0.5"}) || c.Node != "n" {
		t.Errorf("addresses %q of node %q", c.Addresses, c.Node)
	}
}
