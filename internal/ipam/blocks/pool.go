// SPDX-License-Identifier: Apache-2.0

package blocks

import (
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/ipam/addrspan"
	"github.com/weft-net/weft/internal/ipam/poolconf"
	"github.com/weft-net/weft/internal/model"
)

// holder is the owner of an address: an attachment, a claim that outlives attachments, or a claim through its
// attachment.
type holder struct {
	key   model.AttachmentKey
	claim string // the claim's ID
}

// blockState is the state of a block on this node.
type blockState string

const (
	owned     blockState = "owned"
	releasing blockState = "releasing" // it is being released; nothing is allocated from it
	lost      blockState = "lost"      // the datastore assigns it to another node; nothing is allocated from it
)

// block is a block of this node, or a borrowed address.
type block struct {
	cidr   netip.Prefix
	parent netip.Prefix // the object's CIDR; cidr, unless the address is borrowed
	claim  string
	state  blockState
	// object is the last known object; without a version it has not been read since the start.
	object store.Object
	spec   model.AddressBlock
	// lent are addresses that are lent to other nodes, or about to be.
	lent map[netip.Addr]bool
	// idle is since when nothing of it is allocated; touched is the time of the last allocation.
	idle, touched time.Time
	// stale: the object has changed since it was read.
	stale bool
	// offers are the addresses that are offered to one node that has not taken them, and since when.
	offers map[netip.Addr]time.Time
	// exhausted: all its addresses are allocated, reserved or lent. It is skipped until one becomes free.
	exhausted bool
	// nextFree is when the first cooldown ends; until then nothing of it is free.
	nextFree time.Time
	// pausedUntil is until when nothing is allocated, because nodes that have addresses of it may borrow these.
	pausedUntil time.Time
}

func (b *block) borrowed() bool { return b.cidr != b.parent }

// offerTime is how long an address is kept for the node that it was offered to.
const offerTime = 10 * time.Second

// updateLocked sets the block's object.
func (b *block) updateLocked(o store.Object, spec model.AddressBlock, now time.Time) {
	offers := map[netip.Addr]time.Time{}
	for a, with := range spec.Lent {
		if len(with) < 2 || !strings.HasSuffix(with, "/") {
			continue
		}
		offers[a] = now
		if since, was := b.offers[a]; was && b.spec.Lent[a] == with {
			offers[a] = since
		}
	}
	b.object, b.spec, b.offers, b.exhausted, b.nextFree = o, spec, offers, false, time.Time{}
}

// reclaimable reports whether no node uses a lent address: it is lent to any node, its offer has expired, or it was
// returned to the block's node.
func (b *block) reclaimable(a netip.Addr, with string, now time.Time) bool {
	since, offered := b.offers[a]
	return with == "" || with == b.spec.Node+"/" || offered && now.Sub(since) >= offerTime
}

// pool is the state of a pool on this node. nodeState's mutex protects it.
type pool struct {
	name          string
	claimLock     chan struct{} // at most one caller claims or releases blocks
	spec          model.AddressPool
	object        store.Object // without a version the pool has not been read
	reserved      map[netip.Addr]model.ReservedAddress
	blocks        map[netip.Prefix]*block
	order         []*block                            // by address
	remote        map[netip.Prefix]model.AddressBlock // known blocks of other nodes
	vanished      map[netip.Prefix]time.Time          // blocks of other nodes whose objects are gone, since when
	overlapping   map[netip.Prefix]model.AddressBlock // blocks of other pools that overlap this one; usually none
	held          map[netip.Addr]holder
	cooling       map[netip.Addr]cooling
	allocations   int // number of allocations so far
	demands       map[string]*demand
	expected      map[string]poolconf.Want
	waiting       int                 // calls that wait for an address
	requested     map[netip.Addr]bool // specific addresses that were requested from another node
	claimsChecked time.Time           // when claims were last checked
	missingClaim  map[netip.Addr]bool // addresses whose claims were missing in the last check
	// deleted are deleted attachments without a record here: another program may have reservations for them.
	deleted     []model.AttachmentKey
	stale       bool          // the object has changed since it was read
	exhaustedAt time.Time     // when the pool was last exhausted on a node
	noFreeBlock bool          // no unclaimed block is known
	changed     chan struct{} // closed when something changes that may help a waiting call
}

// demand is a want that keeps coming.
type demand struct {
	want poolconf.Want
	last time.Time
	// nextCheck is the number of allocations at which the free addresses are counted again.
	nextCheck int
}

// maxNextFree bounds how long a block is skipped.
const maxNextFree = time.Minute

func newPool(name string) *pool {
	return &pool{
		name: name, claimLock: make(chan struct{}, 1), spec: model.AddressPool{Name: name},
		reserved: map[netip.Addr]model.ReservedAddress{}, blocks: map[netip.Prefix]*block{},
		remote: map[netip.Prefix]model.AddressBlock{}, vanished: map[netip.Prefix]time.Time{}, overlapping: map[netip.Prefix]model.AddressBlock{},
		held: map[netip.Addr]holder{}, cooling: map[netip.Addr]cooling{},
		demands: map[string]*demand{}, expected: map[string]poolconf.Want{}, requested: map[netip.Addr]bool{},
		missingClaim: map[netip.Addr]bool{}, changed: make(chan struct{}),
	}
}

// setBlockLocked sets or (nil) removes the block of a prefix.
func (p *pool) setBlockLocked(cidr netip.Prefix, b *block) {
	if b == nil {
		delete(p.blocks, cidr)
	} else {
		p.blocks[cidr] = b
	}
	p.order = p.order[:0]
	for _, b := range p.blocks {
		p.order = append(p.order, b)
	}
	slices.SortFunc(p.order, func(a, b *block) int { return a.cidr.Addr().Compare(b.cidr.Addr()) })
	p.notifyLocked()
}

// notifyLocked wakes the calls that wait for a change.
func (p *pool) notifyLocked() {
	p.noFreeBlock = false
	close(p.changed)
	p.changed = make(chan struct{})
}

// blockOf returns this node's block, or borrowed address, that has an address.
func (p *pool) blockOf(a netip.Addr) *block {
	if b := p.blocks[netip.PrefixFrom(a, a.BitLen())]; b != nil && b.state != lost {
		return b
	}
	if r, known := p.region(a); known {
		return p.blocks[netip.PrefixFrom(a, r.BlockSize).Masked()]
	}
	var of *block
	for _, b := range p.order {
		if b.cidr.Contains(a) && (of == nil || b.borrowed()) {
			of = b
		}
	}
	return of
}

// empty reports whether no address of a block is allocated, cooling down or lent.
func (p *pool) empty(b *block, now time.Time) bool {
	empty := true
	addrspan.Each(b.cidr, func(a netip.Addr) bool {
		_, held := p.held[a]
		if held && p.blockOf(a) == b || !p.cooling[a].finished(now) {
			empty = false
		}
		return empty
	})
	for a, with := range b.spec.Lent {
		if b.cidr.Contains(a) && !b.borrowed() && !b.reclaimable(a, with, now) {
			return false
		}
	}
	return empty
}

// region returns the region of the pool that has an address.
func (p *pool) region(a netip.Addr) (model.AddressRegion, bool) {
	for _, r := range p.spec.Regions {
		if r.CIDR.Contains(a) {
			return r, true
		}
	}
	return model.AddressRegion{}, false
}

// updateLocked sets the pool's object.
func (p *pool) updateLocked(o store.Object, spec model.AddressPool, now time.Time) {
	p.object = o
	p.setSpecLocked(spec)
	if p.exhausted() {
		p.exhaustedAt = now
	}
	for _, b := range p.order {
		b.exhausted, b.nextFree = false, time.Time{}
	}
	p.notifyLocked()
}

// setSpecLocked sets the pool's spec.
func (p *pool) setSpecLocked(spec model.AddressPool) {
	p.spec = spec
	clear(p.reserved)
	for _, r := range spec.Reserved {
		p.reserved[r.Addr] = r
	}
}

// disabled reports whether nothing more is allocated from the pool.
func (p *pool) disabled() bool { return p.spec.IsClusterPool() && (p.spec.Disabled || p.spec.Deleted) }

// exhausted reports whether a node has reported the pool as exhausted.
func (p *pool) exhausted() bool { return len(p.spec.ExhaustedOn) > 0 }
