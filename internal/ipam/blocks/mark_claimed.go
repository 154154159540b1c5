// SPDX-License-Identifier: Apache-2.0

package blocks

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"sync"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/ipam/claims"
)

// claimIndex knows which addresses the cluster's claims had when they were last listed: a cluster may have tens of
// thousands of claims, and a node should not list them for each block.
//
// The list stays true for blocks that no node had since. A claim gets an address only from a node that has its block,
// and a node releases a block only if it knows of no claim in it. So an address of a claim that is newer than the list
// is in a block that exists, or that another client than its node has deleted: these are the vanished ones.
type claimIndex struct {
	listing sync.Mutex // one list at a time

	mu     sync.Mutex
	listed bool // while a watch of the blocks that began before the list continues
	blinds int  // how many watches have ended
	// claimed are the addresses, sorted.
	claimed []claimedAddress
	// vanished are the blocks whose objects were deleted since the list; released are the claims of blocks that this
	// node has released and whose deletion the watch has not reported yet.
	vanished map[netip.Prefix]bool
	released map[string]bool
}

type claimedAddress struct {
	addr  netip.Addr
	claim string // the claim's ID
}

func (c claimedAddress) compare(a netip.Addr) int { return c.addr.Compare(a) }

// claimedIn returns the claimed addresses of a prefix.
func claimedIn(all []claimedAddress, cidr netip.Prefix) []claimedAddress {
	from, _ := slices.BinarySearchFunc(all, cidr.Masked().Addr(), claimedAddress.compare)
	to := from
	for to < len(all) && cidr.Contains(all[to].addr) {
		to++
	}
	return all[from:to]
}

// find returns the claimed addresses of a new block; false if the claims must be listed for it.
func (ix *claimIndex) find(cidr netip.Prefix) ([]claimedAddress, bool) {
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
func (ix *claimIndex) begin() (blinds int) {
	ix.mu.Lock()
	defer ix.mu.Unlock()
	ix.listed, ix.claimed, ix.vanished = false, nil, map[netip.Prefix]bool{}
	return ix.blinds
}

// set keeps a list that was requested after begin, if a watch has gone on since.
func (ix *claimIndex) set(all []claimedAddress, blinds int) {
	ix.mu.Lock()
	defer ix.mu.Unlock()
	if ix.blinds == blinds {
		ix.listed, ix.claimed = true, slices.Clip(all)
	}
}

// blind is called when the watch of the blocks ends: blocks may vanish unseen.
func (ix *claimIndex) blind() {
	ix.mu.Lock()
	defer ix.mu.Unlock()
	ix.listed, ix.claimed = false, nil
	ix.blinds++
}

// willRelease notes that this node deletes a block of which it knows all claims.
func (ix *claimIndex) willRelease(claim string) {
	ix.mu.Lock()
	defer ix.mu.Unlock()
	if ix.released == nil {
		ix.released = map[string]bool{}
	}
	ix.released[claim] = true
}

// deleted handles the deletion of a block's object.
func (ix *claimIndex) deleted(cidr netip.Prefix, claim string) {
	ix.mu.Lock()
	defer ix.mu.Unlock()
	if ix.released[claim] {
		delete(ix.released, claim)
	} else if ix.vanished != nil {
		ix.vanished[cidr] = true
	}
}

// markClaimed records which addresses of a block that is about to be this node's belong to claims, in the journal too:
// the node that knew it may never come back. created: this node has just created the block's object.
func (af *affinity) markClaimed(ctx context.Context, p *pool, cidr netip.Prefix, created bool) error {
	found, known := af.claimed.find(cidr)
	if !created || !known {
		all, err := af.listClaimed(ctx)
		if err != nil {
			return err
		}
		found = claimedIn(all, cidr)
	}
	for _, c := range found {
		af.state.markClaim(p, c.addr, c.claim)
	}
	return af.journal.saveIfUnsaved()
}

// listClaimed lists the addresses of all claims, sorted.
func (af *affinity) listClaimed(ctx context.Context) ([]claimedAddress, error) {
	af.claimed.listing.Lock()
	defer af.claimed.listing.Unlock()
	blinds, watching := af.claimed.begin(), af.state.isWatching()
	var all []claimedAddress
	for _, kind := range []store.Kind{store.AddressClaims(), store.IPAMClaims()} {
		_, err := store.WithTimeout(ctx, func(ctx context.Context) (struct{}, error) {
			return struct{}{}, store.Each(ctx, af.cfg.Objects, kind, func(o store.Object) {
				id := o.Key.Namespace + "/" + o.Key.Name
				if kind == store.AddressClaims() {
					id = claims.AddressClaimPrefix + id
				}
				for _, a := range claims.Addresses(o) {
					all = append(all, claimedAddress{a, id})
				}
			})
		})
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return nil, store.Unreachable("list of "+kind.Resource, err)
		}
	}
	// Of two claims with one address the one that was listed last counts.
	slices.SortStableFunc(all, func(a, b claimedAddress) int { return a.addr.Compare(b.addr) })
	if watching {
		af.claimed.set(all, blinds)
	}
	return all, nil
}
