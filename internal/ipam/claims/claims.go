// SPDX-License-Identifier: Apache-2.0

// Package claims reads the objects that promise addresses over the life of a pod: IPAMClaims, for networks that a pod
// asks for, and AddressClaims, for the cluster's network, which also virtual machines have.
//
// In blocks, journals and messages a claim is a text: "namespace/name" is an IPAMClaim, and an AddressClaim has
// OfAddressClaim before that.
package claims

import (
	"encoding/json"
	"net/netip"
	"slices"
	"strings"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/ipam"
)

// OfAddressClaim stands before the name of an AddressClaim in a claim's text.
const OfAddressClaim = "AddressClaim "

// Place is where the object of a claim is.
func Place(claim string) (store.Kind, store.Key) {
	if name, is := strings.CutPrefix(claim, OfAddressClaim); is {
		namespace, name, _ := strings.Cut(name, "/")
		return store.AddressClaims(), store.AddressClaims().Key(namespace, name)
	}
	return store.IPAMClaims(), IPAMKey(claim)
}

// IPAMKey is the key of the IPAMClaim of that text.
func IPAMKey(claim string) store.Key {
	namespace, name, _ := strings.Cut(claim, "/")
	return store.IPAMClaims().Key(namespace, name)
}

// Words names a claim for people.
func Words(claim string) string {
	if strings.HasPrefix(claim, OfAddressClaim) {
		return claim
	}
	return "IPAMClaim " + claim
}

// For stands between the node that asks, or has, and the claim that it is for.
const For = " for "

// ForWhom is what is added for a claim, if there is one.
func ForWhom(claim string) string {
	if claim == "" {
		return ""
	}
	return For + claim
}

// In is the claim for which something was written, if any.
func In(text string) string {
	_, claim, _ := strings.Cut(text, For)
	return claim
}

// IPAMClaim is what matters of an IPAMClaim.
type IPAMClaim struct {
	Spec struct {
		IPRequests []string `json:"ipRequests"`
	} `json:"spec"`
	Status struct {
		IPs []string `json:"ips"`
	} `json:"status"`
}

// Addresses are the addresses that a claim has.
func Addresses(o store.Object) (out []netip.Addr) {
	texts, _ := Texts(o) // of a claim that is invalid, what can be read
	for _, text := range texts {
		if a, err := ipam.ParseAddr(text); err == nil {
			out = append(out, a)
		}
	}
	return out
}

// Texts are the addresses that an AddressClaim or an IPAMClaim has, as the object says them.
func Texts(o store.Object) ([]string, error) {
	if o.Key.Of(store.AddressClaims()) {
		c, err := o.AddressClaim()
		return c.Addresses, err
	}
	var c IPAMClaim
	err := json.Unmarshal(o.Raw, &c)
	return c.Status.IPs, err
}

// Says reports whether a claim has an address. When in doubt it has.
func Says(o store.Object, a netip.Addr) bool {
	texts, err := Texts(o)
	return err != nil || slices.ContainsFunc(texts, func(text string) bool {
		b, err := ipam.ParseAddr(text)
		return err != nil || a == b
	})
}

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
		Machine: o.Key.Namespace + "/" + c.VM.Name, Network: c.VM.Network, Interface: c.VM.IfName, Addrs: Addresses(o),
		Node:  c.Node,
		Claim: o.Key.Namespace + "/" + o.Key.Name,
	}, true
}
