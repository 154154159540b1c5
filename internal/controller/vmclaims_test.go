// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weft-net/weft/internal/cluster/store"
)

func vm(kind, name, uid string) string {
	return fmt.Sprintf("---\napiVersion: kubevirt.io/v1\nkind: %s\nmetadata: {name: %s, namespace: shop, uid: %q}\n",
		kind, name, uid)
}

func promised(name, vm string) string {
	return fmt.Sprintf(
		"---\napiVersion: weft.dev/v1alpha1\nkind: AddressClaim\nmetadata: {name: %s, namespace: shop}\nspec: {virtualMachine: %s}\n", name, vm,
	)
}

// TestClaimsOfGoneVMs: their claims are deleted when they were missing for a while; no others are.
func TestClaimsOfGoneVMs(t *testing.T) {
	claims := promised("one", "{name: one, kind: VirtualMachine, uid: u1}") +
		promised("again", "{name: again, kind: VirtualMachineInstance, uid: u2}") +
		promised("flaps", "{name: flaps, kind: VirtualMachine, uid: u3}") +
		promised("bare", "{name: bare}") + // of no object: left to the operator
		promised("stays", "{name: stays, kind: VirtualMachine, uid: u4}") +
		"---\napiVersion: weft.dev/v1alpha1\nkind: AddressClaim\nmetadata: {name: theirs, namespace: shop}\nspec: {}\n" +
		"---\napiVersion: weft.dev/v1alpha1\nkind: AddressClaim\nmetadata: {name: owned, namespace: shop, ownerReferences: [{apiVersion: kubevirt.io/v1, kind: VirtualMachine, name: owned, uid: u5}]}\n" +
		"spec: {virtualMachine: {name: owned, kind: VirtualMachine, uid: u5}}\n"
	stays := vm("VirtualMachine", "stays", "u4")
	w := newWorld(t, claims)
	w.write("vms.yaml", stays+vm("VirtualMachine", "one", "u1")+vm("VirtualMachineInstance", "again", "u2"))
	c := New(Config{Objects: w, Now: func() time.Time { return w.now }})
	read := func(all bool, want ...string) {
		t.Helper()
		c.cfg.Objects = w.Objects
		if err := c.releaseVMClaims(t.Context(), all); err != nil {
			t.Fatal(err)
		}
		have, err := w.List(t.Context(), store.AddressClaims())
		if err != nil {
			t.Fatal(err)
		}
		names := []string{}
		for _, o := range have {
			names = append(names, o.Key.Name)
		}
		slices.Sort(names)
		if d := cmp.Diff(want, names); d != "" {
			t.Errorf("claims (-want +have):\n%s", d)
		}
	}
	read(false, "again", "bare", "flaps", "one", "owned", "stays", "theirs")
	// One goes, another is another one by now; that which was missing is there again.
	w.write("vms.yaml", stays+vm("VirtualMachineInstance", "again", "u9")+vm("VirtualMachine", "flaps", "u3"))
	read(false, "again", "bare", "flaps", "one", "owned", "stays", "theirs")
	w.now = w.now.Add(time.Second)
	read(false, "again", "bare", "flaps", "one", "owned", "stays", "theirs")
	w.now = w.now.Add(2 * vmMissingFor)
	read(false, "bare", "flaps", "owned", "stays", "theirs")
	// What a server of Kubernetes looks after is looked at seldom, and then until it is certain.
	read(true, "bare", "flaps", "owned", "stays", "theirs")
	w.now = w.now.Add(2 * vmMissingFor)
	read(false, "bare", "flaps", "stays", "theirs")
}
