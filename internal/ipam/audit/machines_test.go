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

// TestCheckMachines: what is promised to machines is shown, whatever network it is for; an address that a node which is
// gone had for one is left to the machine; and an operator takes promises back.
func TestCheckMachines(t *testing.T) {
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
	is(t, "findings", strings.Join(found, "; "), `address 10.1.0.2 was ceded to node "gone", and there is no such node`)
	if len(p.Machines) != 2 || p.Machines[0].Machine != "shop/db" || p.Machines[0].Addrs[0].String() != "10.1.0.1" ||
		p.Machines[1].Network != "lan" {
		t.Errorf("machines: %+v", p.Machines)
	}
	done, err := ReleaseMachine(t.Context(), s.Objects(), "shop/db")
	is(t, "released", strings.Join(done, "; "), "AddressClaim shop/vm-db-1: 10.1.0.1; AddressClaim shop/vm-db-2: 10.2.0.1")
	if err != nil {
		t.Error(err)
	}
	_, err = ReleaseMachine(t.Context(), s.Objects(), "shop/db")
	if err == nil ||
		err.Error() != "nothing is promised to virtual machine shop/db (see the machines in `weft ipam show`)" {
		t.Errorf("once more: %v", err)
	}
}
