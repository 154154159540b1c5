// SPDX-License-Identifier: Apache-2.0

// Package claimindex knows which addresses of a new block belong to claims, without a list of all claims for each block.
package claimindex

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"sync"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/ipam/claims"
)

// Index knows which addresses the cluster's claims had when they were last listed: a cluster may have tens of thousands
// of claims, and a node should not list them for each block. The zero Index is empty, and lists them first. It is safe
// for concurrent use.
//
// The list stays true for blocks that no node had since. A claim gets an address only from a node that has its block,
// and a node releases a block only if it knows of no claim in it. So an address of a claim that is newer than the list
// is in a block that exists, or that another client than its node has deleted: these are the vanished ones.
type Index struct {
	listing sync.Mutex // one list at a time

	mu     sync.Mutex
	listed bool // while a watch of the blocks that began before the list continues
	blinds int  // how many watches have ended
	// claimed are the addresses, sorted.
	claimed []Address
	// vanished are the blocks whose objects were deleted since the list; released are the claims of blocks that this
	// node has released and whose deletion the watch has not reported yet.
	vanished map[netip.Prefix]bool
	released map[string]bool
}

// Address is an address of a claim, by the claim's ID as in package claims.
type Address struct {
	Addr    netip.Addr
	ClaimID string
}

func (c Address) compare(a netip.Addr) int { return c.Addr.Compare(a) }

// claimedIn returns the claimed addresses of a prefix.
func claimedIn(all []Address, cidr netip.Prefix) []Address {
	from, _ := slices.BinarySearchFunc(all, cidr.Masked().Addr(), Address.compare)
	to := from
	for to < len(all) && cidr.Contains(all[to].Addr) {
		to++
	}
	return all[from:to]
}

// Find returns the claimed addresses of a new block; false if the claims must be listed for it.
func (ix *Index) Find(cidr netip.Prefix) ([]Address, bool) {
	ix.mu.Lock()
	defer ix.mu.Unlock()
	if !ix.listed {
		return nil, false
	}
	for gone := range ix.vanished {
		if gone.Overlaps(cidr) {
			return nil, false
		}
	}
	return claimedIn(ix.claimed, cidr), true
}

// begin is called before the claims are listed: what vanishes during the list may not be in it. The result is for set.
func (ix *Index) begin() (blinds int) {
	ix.mu.Lock()
	defer ix.mu.Unlock()
	ix.listed, ix.claimed, ix.vanished = false, nil, map[netip.Prefix]bool{}
	return ix.blinds
}

// set keeps a list that was requested after begin, if a watch has gone on since.
func (ix *Index) set(all []Address, blinds int) {
	ix.mu.Lock()
	defer ix.mu.Unlock()
	if ix.blinds == blinds {
		ix.listed, ix.claimed = true, slices.Clip(all)
	}
}

// WatchEnded is called when the watch of the blocks ends: blocks may vanish unseen.
func (ix *Index) WatchEnded() {
	ix.mu.Lock()
	defer ix.mu.Unlock()
	ix.listed, ix.claimed = false, nil
	ix.blinds++
}

// WillRelease notes that this node deletes a block of which it knows all claims.
func (ix *Index) WillRelease(claim string) {
	ix.mu.Lock()
	defer ix.mu.Unlock()
	if ix.released == nil {
		ix.released = map[string]bool{}
	}
	ix.released[claim] = true
}

// BlockDeleted handles the deletion of a block's object.
func (ix *Index) BlockDeleted(cidr netip.Prefix, claim string) {
	ix.mu.Lock()
	defer ix.mu.Unlock()
	if ix.released[claim] {
		delete(ix.released, claim)
	} else if ix.vanished != nil {
		ix.vanished[cidr] = true
	}
}

// List lists all claims, and returns the claimed addresses of a prefix. watching reports whether a watch of the blocks
// reports every deletion from now on: the index uses the list then until that watch ends.
func (ix *Index) List(
	ctx context.Context, objects store.Objects, watching func() bool, cidr netip.Prefix,
) ([]Address, error) {
	ix.listing.Lock()
	defer ix.listing.Unlock()
	blinds, keep := ix.begin(), watching()
	var all []Address
	for _, kind := range []store.Kind{store.AddressClaims(), store.IPAMClaims()} {
		_, err := store.WithTimeout(ctx, func(ctx context.Context) (struct{}, error) {
			return struct{}{}, store.Each(ctx, objects, kind, func(o store.Object) {
				id := o.Key.Namespace + "/" + o.Key.Name
				if kind == store.AddressClaims() {
					id = claims.AddressClaimPrefix + id
				}
				for _, a := range claims.Addresses(o) {
					all = append(all, Address{a, id})
				}
			})
		})
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return nil, store.Unreachable("list of "+kind.Resource, err)
		}
	}
	// Of two claims with one address the one that was listed last counts.
	slices.SortStableFunc(all, func(a, b Address) int { return a.Addr.Compare(b.Addr) })
	if keep {
		ix.set(all, blinds)
	}
	return claimedIn(all, cidr), nil
}
