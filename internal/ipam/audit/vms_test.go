// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"strings"
	"testing"
)

func is(t *testing.T, what, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %s\nwant %s", what, got, want)
	}
}

// TestCheckVMs: the claims of VMs are shown, of all networks; an address that a deleted node had for one stays with the
// VM; and an operator can release claims.
func TestCheckVMs(t *testing.T) {
	s := cluster(t,
		"apiVersion: weft.dev/v1alpha1\nkind: AddressPool\nmetadata: {name: four}\nspec: {assignmentMode: Automatic, regions: [{cidr: 10.1.0.0/27, blockSize: 29}]}\n",
		"apiVersion: weft.dev/v1alpha1\nkind: AddressPool\nmetadata: {name: lan}\nspec: {regions: [{cidr: 10.2.0.0/27, blockSize: 29}]}\n",
		"apiVersion: v1\nkind: Node\nmetadata: {name: a}\n",
		"apiVersion: weft.dev/v1alpha1\nkind: AddressBlock\nmetadata: {name: four-10-1-0-0-29}\n"+
			"spec: {pool: four, cidr: 10.1.0.0/29, node: a, claim: x, ceded: {10.1.0.1: gone/1, 10.1.0.2: gone/2}}\n",
		"apiVersion: weft.dev/v1alpha1\nkind: AddressClaim\nmetadata: {name: vm-db-1, namespace: shop}\n"+
			"spec: {virtualMachine: {name: db, network: net, interface: eth0}}\nstatus: {addresses: [10.1.0.1], node: gone}\n",
		"apiVersion: weft.dev/v1alpha1\nkind: AddressClaim\nmetadata: {name: vm-db-2, namespace: shop}\n"+
			"spec: {virtualMachine: {name: db, network: lan, interface: net1}}\nstatus: {addresses: [10.2.0.1]}\n",
	)
	p, err := Inspect(t.Context(), s.Objects())
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, f := range p.Findings {
		found = append(found, f.Msg)
	}
	is(t, "findings", strings.Join(found, "; "), `address 10.1.0.2 is lent to node "gone", and there is no such node`)
	if len(p.VMs) != 2 || p.VMs[0].VM != "shop/db" || p.VMs[0].Addrs[0].String() != "10.1.0.1" ||
		p.VMs[1].Network != "lan" {
		t.Errorf("machines: %+v", p.VMs)
	}
	done, err := ReleaseVM(t.Context(), s.Objects(), "shop/db")
	is(t, "released", strings.Join(done, "; "), "AddressClaim shop/vm-db-1: 10.1.0.1; AddressClaim shop/vm-db-2: 10.2.0.1")
	if err != nil {
		t.Error(err)
	}
	_, err = ReleaseVM(t.Context(), s.Objects(), "shop/db")
	if err == nil ||
		err.Error() != "virtual machine shop/db has no claims (see the VMs in `weft ipam show`)" {
		t.Errorf("once more: %v", err)
	}
}
