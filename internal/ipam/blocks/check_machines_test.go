// SPDX-License-Identifier: Apache-2.0

package blocks

import (
	"strings"
	"testing"
)

// TestCheckMachines: what is promised to machines is shown, whatever network it is for; an address that a node which is gone had for one is
// left to the machine; and people take promises back.
func TestCheckMachines(t *testing.T) {
	_, path := cluster(t, map[string]string{
		"pools.yaml": poolYAML("four", "10.1.0.0/27", 29) + "---\napiVersion: weft.dev/v1alpha1\nkind: AddressPool\nmetadata: {name: lan}\nspec: {regions: [{cidr: 10.2.0.0/27, blockSize: 29}]}\n",
		"node.yaml":  nodeYAML("a"),
		"block.yaml": "apiVersion: weft.dev/v1alpha1\nkind: AddressBlock\nmetadata: {name: four-10-1-0-0-29}\n" +
			"spec: {pool: four, cidr: 10.1.0.0/29, node: a, claim: x, ceded: {10.1.0.1: gone/1, 10.1.0.2: gone/2}}\n",
		"claims.yaml": "apiVersion: weft.dev/v1alpha1\nkind: AddressClaim\nmetadata: {name: vm-db-1, namespace: shop}\n" +
			"spec: {virtualMachine: {name: db, network: net, interface: eth0}}\nstatus: {addresses: [10.1.0.1], node: gone}\n---\n" +
			"apiVersion: weft.dev/v1alpha1\nkind: AddressClaim\nmetadata: {name: vm-db-2, namespace: shop}\n" +
			"spec: {virtualMachine: {name: db, network: lan, interface: net1}}\nstatus: {addresses: [10.2.0.1]}\n",
	})
	n := join(t, path, "a", nil)
	p, err := Look(t.Context(), n.line.Objects)
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, f := range p.Findings {
		found = append(found, f.Msg)
	}
	is(t, "findings", strings.Join(found, "; "), `address 10.1.0.2 was ceded to node "gone", and there is no such node`)
	if len(p.Machines) != 2 || p.Machines[0].Machine != "shop/db" || p.Machines[0].Addrs[0].String() != "10.1.0.1" || p.Machines[1].Network != "lan" {
		t.Errorf("machines: %+v", p.Machines)
	}
	done, err := ReleaseMachine(t.Context(), n.line.Objects, "shop/db")
	is(t, "released", strings.Join(done, "; "), "AddressClaim shop/vm-db-1: 10.1.0.1; AddressClaim shop/vm-db-2: 10.2.0.1")
	if err != nil {
		t.Error(err)
	}
	_, err = ReleaseMachine(t.Context(), n.line.Objects, "shop/db")
	if err == nil || err.Error() != "nothing is promised to virtual machine shop/db (see the machines in `weft ipam show`)" {
		t.Errorf("once more: %v", err)
	}
}
