// SPDX-License-Identifier: Apache-2.0

package blocks

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

const givenHint = "put the object right, or delete it if whereabouts is not used any more"

// given is an address that whereabouts has given by what one of its objects says.
type given struct {
	model.ReservedAddress
	// network is the network_name that it was given for, where known says that the object tells.
	network string
	known   bool
	// claimed: it belongs to an IPAMClaim, and may have no pod.
	claimed bool
	from    store.Key
}

// ipPool is what matters of whereabouts' IPPool.
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

// overlap is what matters of whereabouts' OverlappingRangeIPReservation. The address is its name.
type overlap struct {
	Spec struct {
		PodRef      string `json:"podref"`
		IfName      string `json:"ifname"`
		ContainerID string `json:"containerid"`
		Claim       string `json:"ipamclaimref"`
	} `json:"spec"`
}

// whereabouts is what all of its objects say.
type whereabouts struct {
	// addrs are those that say most first. The two kinds of objects do not always agree: a pool that could not be written leaves
	// a reservation alone, and a pod has that address all the same.
	addrs []given
	// ranges are those that it gives addresses of, the largest first.
	ranges []givenRange
}

// givenRange is a range that whereabouts gives addresses of, with its network_name where the object tells.
type givenRange struct {
	network netip.Prefix
	name    string
	known   bool
}

func readWhereabouts(ctx context.Context, objects store.Objects) (whereabouts, error) {
	var all whereabouts
	for _, kind := range []struct {
		store.Kind
		read func(*whereabouts, store.Object) error
	}{
		{store.WhereaboutsPools(), (*whereabouts).readPool},
		{store.WhereaboutsReservations(), (*whereabouts).readOverlap},
		{store.WhereaboutsSlices(), (*whereabouts).readSlices},
	} {
		found, err := asking(ctx, func(ctx context.Context) ([]store.Object, error) { return objects.List(ctx, kind.Kind) })
		if errors.Is(err, store.ErrNotFound) {
			continue // whereabouts was never here
		}
		if err != nil {
			return all, unreachable("whereabouts' "+kind.Resource, err)
		}
		slices.SortFunc(found, func(a, b store.Object) int { return strings.Compare(a.Key.String(), b.Key.String()) })
		for _, o := range found {
			if err := kind.read(&all, o); err != nil {
				return all, err
			}
		}
	}
	slices.SortStableFunc(all.ranges, func(a, b givenRange) int { return a.network.Bits() - b.network.Bits() })
	return all, nil
}

// foreign are the addresses of some networks that whereabouts has given by now, for a network_name.
func foreign(ctx context.Context, objects store.Objects, name string, networks []netip.Prefix) ([]model.ReservedAddress, error) {
	all, err := readWhereabouts(ctx, objects)
	if err != nil {
		return nil, err
	}
	var out []model.ReservedAddress
	seen := map[netip.Addr]bool{}
	for _, g := range all.addrs {
		inside := slices.ContainsFunc(networks, func(p netip.Prefix) bool { return p.Contains(g.Addr) })
		if inside && g.maybeOf(name) && !seen[g.Addr] {
			seen[g.Addr] = true
			out = append(out, g.ReservedAddress)
		}
	}
	slices.SortFunc(out, func(a, b model.ReservedAddress) int { return a.Addr.Compare(b.Addr) })
	return out, nil
}

// maybeOf tells whether the address may have been given for a network_name.
func (g given) maybeOf(network string) bool { return !g.known || g.network == network }

// readPool reads the allocations of an IPPool: their names are offsets from the beginning of the range.
func (all *whereabouts) readPool(o store.Object) error {
	var p ipPool
	if err := json.Unmarshal(o.Raw, &p); err != nil {
		return model.Faultf(model.CodeDecode, givenHint, "%s: %w", o.Key, err)
	}
	network, err := netip.ParsePrefix(p.Spec.Range)
	if err != nil {
		return model.Faultf(model.CodeDecode, givenHint, "%s: spec.range %q is no prefix", o.Key, p.Spec.Range)
	}
	name, known := networkName(o.Key.Name, p.Spec.Range)
	network = network.Masked()
	all.ranges = append(all.ranges, givenRange{network, name, known})
	var out []given
	for offset, a := range p.Spec.Allocations {
		address, ok := atOffset(network, offset)
		if !ok {
			return model.Faultf(model.CodeDecode, givenHint, "%s: spec.allocations: %q is no offset in %s", o.Key, offset, network)
		}
		g := given{network: name, known: known, from: o.Key}
		g.ReservedAddress = model.ReservedAddress{Addr: address, For: a.PodRef, ContainerID: a.ID, IfName: a.IfName, By: TypeWhereabouts}
		g.claim(a.Claim)
		out = append(out, g)
	}
	slices.SortFunc(out, func(a, b given) int { return a.Addr.Compare(b.Addr) })
	all.addrs = append(all.addrs, out...)
	return nil
}

// readSlices reads the range of which each node has a slice: the slices have IPPools, and all of it is one network.
func (all *whereabouts) readSlices(o store.Object) error {
	var s struct {
		Spec struct {
			Range string `json:"range"`
		} `json:"spec"`
	}
	if err := json.Unmarshal(o.Raw, &s); err != nil {
		return model.Faultf(model.CodeDecode, givenHint, "%s: %w", o.Key, err)
	}
	network, err := netip.ParsePrefix(s.Spec.Range)
	if err != nil {
		return model.Faultf(model.CodeDecode, givenHint, "%s: spec.range %q is no prefix", o.Key, s.Spec.Range)
	}
	all.ranges = append(all.ranges, givenRange{network: network.Masked()})
	return nil
}

// claim notes the IPAMClaim that the address belongs to, if any: it does not go with the pod.
func (g *given) claim(claim string) {
	if claim != "" {
		g.For, g.claimed = "IPAMClaim "+claim, true
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

// networkName is the network_name in the name of an IPPool, which is made of it, of the range and, where each node has a slice,
// of the node.
func networkName(name, within string) (string, bool) {
	within = strings.NewReplacer(":", "-", "/", "-").Replace(within)
	before, after, found := strings.Cut("-"+name+"-", "-"+within+"-")
	if !found || strings.Contains(after, within) {
		return "", false
	}
	return strings.TrimPrefix(before, "-"), true
}

// readOverlap reads the address out of the name of a reservation: "NETWORK-ADDRESS" or only the address, with '-' for ':'. Where
// it can be read in several ways, each of them is taken: the range that is looked for tells which is meant.
func (all *whereabouts) readOverlap(o store.Object) error {
	var r overlap
	if err := json.Unmarshal(o.Raw, &r); err != nil {
		return model.Faultf(model.CodeDecode, givenHint, "%s: %w", o.Key, err)
	}
	found := false
	for at := 0; ; at++ {
		a, err := netip.ParseAddr(strings.ReplaceAll(o.Key.Name[at:], "-", ":"))
		if err == nil && a.Zone() == "" {
			g := given{network: strings.TrimSuffix(o.Key.Name[:at], "-"), known: true, from: o.Key}
			g.ReservedAddress = model.ReservedAddress{Addr: a, For: r.Spec.PodRef, ContainerID: r.Spec.ContainerID, IfName: r.Spec.IfName, By: TypeWhereabouts}
			g.claim(r.Spec.Claim)
			all.addrs, found = append(all.addrs, g), true
		}
		next := strings.IndexByte(o.Key.Name[at:], '-')
		if next < 0 {
			break
		}
		at += next
	}
	if !found {
		return model.Faultf(model.CodeDecode, givenHint, "%s: metadata.name %q has no address", o.Key, o.Key.Name)
	}
	return nil
}
