// SPDX-License-Identifier: Apache-2.0

package blocks

import (
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
	if !o.Key.Of(store.AddressClaims()) {
		return MachinePromise{}, false
	}
	c, err := o.AddressClaim()
	if err != nil || c.VM.Name == "" {
		return MachinePromise{}, false
	}
	return MachinePromise{
		Machine: o.Key.Namespace + "/" + c.VM.Name, Network: c.VM.Network, Interface: c.VM.IfName, Addrs: AddressesOf(o), Node: c.Node,
		Claim: o.Key.Namespace + "/" + o.Key.Name,
	}, true
}
