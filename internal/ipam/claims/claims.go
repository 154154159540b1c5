// SPDX-License-Identifier: Apache-2.0

// Package claims reads the objects by which addresses outlive a pod: IPAMClaims, for additional networks of a pod, and
// AddressClaims, for the cluster's network and for virtual machines.
//
// OfEntry blocks, journals and messages a claim is a text: "namespace/name" is an IPAMClaim, and an AddressClaim has
// AddressClaimPrefix before that.
package claims

import (
	"encoding/json"
	"net/netip"
	"slices"
	"strings"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/ipam"
)

// AddressClaimPrefix begins the ID of an AddressClaim.
const AddressClaimPrefix = "AddressClaim "

// ObjectKey returns the kind and the key of a claim's object.
func ObjectKey(claim string) (store.Kind, store.Key) {
	if name, is := strings.CutPrefix(claim, AddressClaimPrefix); is {
		namespace, name, _ := strings.Cut(name, "/")
		return store.AddressClaims(), store.AddressClaims().Key(namespace, name)
	}
	return store.IPAMClaims(), IPAMKey(claim)
}

// IPAMKey returns the key of the IPAMClaim of that ID.
func IPAMKey(claim string) store.Key {
	namespace, name, _ := strings.Cut(claim, "/")
	return store.IPAMClaims().Key(namespace, name)
}

// Describe names a claim in messages.
func Describe(claim string) string {
	if strings.HasPrefix(claim, AddressClaimPrefix) {
		return claim
	}
	return "IPAMClaim " + claim
}

// EntrySeparator separates a node from the claim that it requests or has an address for, in entries of a block.
const EntrySeparator = " for "

// EntrySuffix returns what an entry of a block has for a claim, if there is one.
func EntrySuffix(claim string) string {
	if claim == "" {
		return ""
	}
	return EntrySeparator + claim
}

// OfEntry returns the claim in an entry of a block, if any.
func OfEntry(text string) string {
	_, claim, _ := strings.Cut(text, EntrySeparator)
	return claim
}

// IPAMClaim is the relevant part of an IPAMClaim.
type IPAMClaim struct {
	Spec struct {
		IPRequests []string `json:"ipRequests"`
	} `json:"spec"`
	Status struct {
		IPs []string `json:"ips"`
	} `json:"status"`
}

// Addresses returns the addresses of a claim.
func Addresses(o store.Object) (out []netip.Addr) {
	texts, _ := Texts(o) // the valid ones of an invalid claim
	for _, text := range texts {
		if a, err := ipam.ParseAddr(text); err == nil {
			out = append(out, a)
		}
	}
	return out
}

// Texts returns the addresses of an AddressClaim or an IPAMClaim as they are in the object.
func Texts(o store.Object) ([]string, error) {
	if o.Key.Of(store.AddressClaims()) {
		c, err := o.AddressClaim()
		return c.Addresses, err
	}
	var c IPAMClaim
	err := json.Unmarshal(o.Raw, &c)
	return c.Status.IPs, err
}

// Names reports whether a claim has an address. An invalid claim counts as having it.
func Names(o store.Object, a netip.Addr) bool {
	texts, err := Texts(o)
	return err != nil || slices.ContainsFunc(texts, func(text string) bool {
		b, err := ipam.ParseAddr(text)
		return err != nil || a == b
	})
}

// VMClaim has the addresses of an interface of a virtual machine.
type VMClaim struct {
	VM        string       `json:"machine"` // "namespace/name"
	Network   string       `json:"network"`
	Interface string       `json:"interface"`
	Addrs     []netip.Addr `json:"addresses"`
	Node      string       `json:"node,omitempty"` // that used them last
	// Claim is the AddressClaim, "namespace/name".
	Claim string `json:"claim"`
}

// VMClaimOf decodes the claim of a VM; false: it is not one.
func VMClaimOf(o store.Object) (VMClaim, bool) {
	if !o.Key.Of(store.AddressClaims()) {
		return VMClaim{}, false
	}
	c, err := o.AddressClaim()
	if err != nil || c.VM.Name == "" {
		return VMClaim{}, false
	}
	return VMClaim{
		VM: o.Key.Namespace + "/" + c.VM.Name, Network: c.VM.Network, Interface: c.VM.IfName, Addrs: Addresses(o),
		Node:  c.Node,
		Claim: o.Key.Namespace + "/" + o.Key.Name,
	}, true
}
