// SPDX-License-Identifier: Apache-2.0

package store_test

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/model"
)

// A move is the same after it was written and read, and keeps keys that others have added.
func TestAddressMove(t *testing.T) {
	want := model.AddressMove{
		Namespace: "shop", Name: "db-1", VM: "db", Addrs: []netip.Addr{
			netip.MustParseAddr("10.1.0.5"), netip.MustParseAddr("fd00::5"),
		}, Target: "n2", TargetPod: "db-2",
	}
	o, err := store.AddressMoveObject(store.Object{}, want)
	if err != nil {
		t.Fatal(err)
	}
	if o.Key.String() != "AddressMove shop/db-1" {
		t.Errorf("key %s", o.Key)
	}
	o, err = o.Edited(store.Annotate(map[string]string{"theirs": "1"}))
	if err != nil {
		t.Fatal(err)
	}
	want.Source, want.Connections, want.Departed = "n1", []byte{0, 1, 2, 255}, true
	if o, err = store.AddressMoveObject(o, want); err != nil {
		t.Fatal(err)
	}
	got, err := o.AddressMove()
	if d := cmp.Diff(want, got, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); err != nil || d != "" {
		t.Errorf("%v\n%s", err, d)
	}
	for text, says := range map[string]string{
		`{"target":"n2"}`: "AddressMove shop/db-1: spec names no target or no address (delete it; weft makes these objects itself)",
		`{"addresses":["10.0.0.0.1"],"target":"n2"}`:                 "AddressMove shop/db-1: spec.addresses[0] \"10.0.0.0.1\" is no IP address (write for example \"192.168.0.1\")",
		`{"addresses":["10.0.0.1"],"target":"n2","connections":"-"}`: "",
	} {
		o, err := store.NewObject(
			[]byte(
				`{"apiVersion":"weft.dev/v1alpha1","kind":"AddressMove","metadata":{"namespace":"shop","name":"db-1"},"spec":` +
					text + `}`,
			),
		)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := o.AddressMove(); err == nil || says != "" && err.Error() != says {
			t.Errorf("%s: %v", text, err)
		}
	}
}
