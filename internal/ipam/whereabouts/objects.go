// SPDX-License-Identifier: Apache-2.0

package whereabouts

import (
	"context"
	"encoding/json"
	"errors"
	"math/big"
	"net/netip"
	"slices"
	"strings"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/model"
)

const objectHint = "correct the object, or delete it if whereabouts is not used any more"

// Allocation is an address that whereabouts has allocated, from one of its objects.
type Allocation struct {
	model.ReservedAddress
	// NetworkName is the network_name of the allocation; it is valid if Known, because not all objects contain it.
	NetworkName string
	Known       bool
	// Claimed: the address belongs to an IPAMClaim, and may have no pod.
	Claimed bool
	From    store.Key
}

// ipPool is the relevant part of whereabouts' IPPool.
type ipPool struct {
	Spec struct {
		Range       string `json:"range"`
		Allocations map[string]struct {
			ID     string `json:"id"`
			PodRef string `json:"podref"`
			IfName string `json:"ifname"`
			Claim  string `json:"ipamclaimref"`
		} `json:"allocations"`
	} `json:"spec"`
}

// reservation is the relevant part of whereabouts' OverlappingRangeIPReservation. Its name has the address.
type reservation struct {
	Spec struct {
		PodRef      string `json:"podref"`
		IfName      string `json:"ifname"`
		ContainerID string `json:"containerid"`
		Claim       string `json:"ipamclaimref"`
	} `json:"spec"`
}

// Objects has all allocations and ranges of whereabouts' objects.
type Objects struct {
	// Allocations are sorted by detail: those of pools first. The two kinds of objects may disagree: if the pool could not
	// be written, only the reservation exists, and yet a pod has the address.
	Allocations []Allocation
	// Ranges are the ranges that it allocates from, the largest first.
	Ranges []Range
}

// Range is a range that whereabouts allocates from, with its network_name, valid if Known.
type Range struct {
	CIDR        netip.Prefix
	NetworkName string
	Known       bool
}

// Lister lists all objects of a kind, with its own timeout. store.ErrNotFound: the kind is not installed.
type Lister func(context.Context, store.Kind) ([]store.Object, error)

// Read reads all of whereabouts' objects. An invalid one is an error: its addresses might be allocated again.
func Read(ctx context.Context, list Lister) (Objects, error) {
	var all Objects
	for _, kind := range []struct {
		store.Kind
		read func(*Objects, store.Object) error
	}{
		{store.WhereaboutsPools(), (*Objects).readPool},
		{store.WhereaboutsReservations(), (*Objects).readReservation},
		{store.WhereaboutsSlices(), (*Objects).readSlices},
	} {
		found, err := list(ctx, kind.Kind)
		if errors.Is(err, store.ErrNotFound) {
			continue // whereabouts was never installed
		}
		if err != nil {
			return all, err
		}
		slices.SortFunc(found, func(a, b store.Object) int { return strings.Compare(a.Key.String(), b.Key.String()) })
		for _, o := range found {
			if err := kind.read(&all, o); err != nil {
				return all, err
			}
		}
	}
	slices.SortStableFunc(all.Ranges, func(a, b Range) int { return a.CIDR.Bits() - b.CIDR.Bits() })
	return all, nil
}

// Reserved returns the addresses of some networks that may have been allocated for a network_name, in order.
func (all *Objects) Reserved(networkName string, networks []netip.Prefix) []model.ReservedAddress {
	var out []model.ReservedAddress
	seen := map[netip.Addr]bool{}
	for _, a := range all.Allocations {
		inside := slices.ContainsFunc(networks, func(p netip.Prefix) bool { return p.Contains(a.Addr) })
		if inside && a.MaybeOf(networkName) && !seen[a.Addr] {
			seen[a.Addr] = true
			out = append(out, a.ReservedAddress)
		}
	}
	slices.SortFunc(out, func(a, b model.ReservedAddress) int { return a.Addr.Compare(b.Addr) })
	return out
}

// MaybeOf reports whether the address may have been allocated for a network_name.
func (a Allocation) MaybeOf(networkName string) bool { return !a.Known || a.NetworkName == networkName }

// readPool reads the allocations of an IPPool: their names are offsets from the beginning of the range.
func (all *Objects) readPool(o store.Object) error {
	var p ipPool
	if err := json.Unmarshal(o.Raw, &p); err != nil {
		return model.Errorf(model.CodeDecode, objectHint, "%s: %w", o.Key, err)
	}
	network, err := netip.ParsePrefix(p.Spec.Range)
	if err != nil {
		return model.Errorf(model.CodeDecode, objectHint, "%s: spec.range %q is not a prefix", o.Key, p.Spec.Range)
	}
	name, known := networkName(o.Key.Name, p.Spec.Range)
	network = network.Masked()
	all.Ranges = append(all.Ranges, Range{network, name, known})
	var out []Allocation
	for offset, a := range p.Spec.Allocations {
		address, ok := atOffset(network, offset)
		if !ok {
			return model.Errorf(model.CodeDecode, objectHint, "%s: spec.allocations: %q is not an offset in %s", o.Key,
				offset, network)
		}
		g := Allocation{NetworkName: name, Known: known, From: o.Key}
		g.ReservedAddress = model.ReservedAddress{
			Addr:        address,
			Owner:       a.PodRef,
			ContainerID: a.ID,
			IfName:      a.IfName,
			Source:      Type,
		}
		g.claim(a.Claim)
		out = append(out, g)
	}
	slices.SortFunc(out, func(a, b Allocation) int { return a.Addr.Compare(b.Addr) })
	all.Allocations = append(all.Allocations, out...)
	return nil
}

// readSlices reads the range whose slices are assigned to nodes: the slices have IPPools, and all of it is one network.
func (all *Objects) readSlices(o store.Object) error {
	var s struct {
		Spec struct {
			Range string `json:"range"`
		} `json:"spec"`
	}
	if err := json.Unmarshal(o.Raw, &s); err != nil {
		return model.Errorf(model.CodeDecode, objectHint, "%s: %w", o.Key, err)
	}
	network, err := netip.ParsePrefix(s.Spec.Range)
	if err != nil {
		return model.Errorf(model.CodeDecode, objectHint, "%s: spec.range %q is not a prefix", o.Key, s.Spec.Range)
	}
	all.Ranges = append(all.Ranges, Range{CIDR: network.Masked()})
	return nil
}

// claim records the IPAMClaim that the address belongs to, if any: the address is not released with the pod.
func (a *Allocation) claim(claim string) {
	if claim != "" {
		a.Owner, a.Claimed = "IPAMClaim "+claim, true
	}
}

func atOffset(network netip.Prefix, offset string) (netip.Addr, bool) {
	n, ok := new(big.Int).SetString(offset, 10)
	if !ok || n.Sign() < 0 {
		return netip.Addr{}, false
	}
	size := network.Addr().BitLen() / 8
	b := n.Add(n, new(big.Int).SetBytes(network.Addr().AsSlice())).Bytes()
	if len(b) > size {
		return netip.Addr{}, false
	}
	a, _ := netip.AddrFromSlice(append(make([]byte, size-len(b)), b...))
	return a, network.Contains(a)
}

// networkName returns the network_name in the name of an IPPool, which is built from it, the range and, if nodes have
// slices, the node.
func networkName(name, within string) (string, bool) {
	within = strings.NewReplacer(":", "-", "/", "-").Replace(within)
	before, after, found := strings.Cut("-"+name+"-", "-"+within+"-")
	if !found || strings.Contains(after, within) {
		return "", false
	}
	return strings.TrimPrefix(before, "-"), true
}

// readReservation reads the address from the name of a reservation: "NETWORK-ADDRESS" or only the address, with '-' for
// ':'. An ambiguous name yields each possible address: the range decides which one is meant.
func (all *Objects) readReservation(o store.Object) error {
	var r reservation
	if err := json.Unmarshal(o.Raw, &r); err != nil {
		return model.Errorf(model.CodeDecode, objectHint, "%s: %w", o.Key, err)
	}
	found := false
	for at := 0; ; at++ {
		a, err := netip.ParseAddr(strings.ReplaceAll(o.Key.Name[at:], "-", ":"))
		if err == nil && a.Zone() == "" {
			g := Allocation{NetworkName: strings.TrimSuffix(o.Key.Name[:at], "-"), Known: true, From: o.Key}
			g.ReservedAddress = model.ReservedAddress{
				Addr: a, Owner: r.Spec.PodRef, ContainerID: r.Spec.ContainerID, IfName: r.Spec.IfName, Source: Type,
			}
			g.claim(r.Spec.Claim)
			all.Allocations, found = append(all.Allocations, g), true
		}
		next := strings.IndexByte(o.Key.Name[at:], '-')
		if next < 0 {
			break
		}
		at += next
	}
	if !found {
		return model.Errorf(model.CodeDecode, objectHint, "%s: metadata.name %q has no address", o.Key, o.Key.Name)
	}
	return nil
}
