// SPDX-License-Identifier: Apache-2.0

package blocks

import (
	"encoding/json"
	"net/netip"

	"github.com/weft-net/weft/internal/cluster/store"
)

// MachinePromise is what is promised to an interface of a virtual machine.
type MachinePromise struct {
	Machine   string       `json:"machine"` // "namespace/name"
	Network   string       `json:"network"`
	Interface string       `json:"interface"`
	Addrs     []netip.Addr `json:"addresses"`
	Node      string       `json:"node,omitempty"` // where they were used last
	// Claim is the AddressClaim that says so, "namespace/name".
	Claim string `json:"claim"`
}

// PromiseOf reads a claim; false: it is no machine's.
func PromiseOf(o store.Object) (MachinePromise, bool) {
	var c struct {
		Spec struct {
			Machine struct{ Name, Network, Interface string } `json:"virtualMachine"`
		} `json:"spec"`
		Status struct{ Node string } `json:"status"`
	}
	if !o.Key.Of(store.AddressClaims()) || json.Unmarshal(o.Raw, &c) != nil || c.Spec.Machine.Name == "" {
		return MachinePromise{}, false
	}
	m := c.Spec.Machine
	return MachinePromise{
		Machine: o.Key.Namespace + "/" + m.Name, Network: m.Network, Interface: m.Interface, Addrs: AddressesOf(o), Node: c.Status.Node,
		Claim: o.Key.Namespace + "/" + o.Key.Name,
	}, true
}
