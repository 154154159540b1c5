// SPDX-License-Identifier: Apache-2.0

package blocks

import (
	"fmt"
	"hash/fnv"
	"net/netip"
	"slices"
	"time"

	"github.com/weft-net/weft/internal/ipam/addrspan"
	"github.com/weft-net/weft/internal/ipam/poolconf"
	"github.com/weft-net/weft/internal/model"
)

// candidate returns an unclaimed block: the first, or after a conflict one of the next few at random. In a pool of the
// cluster's network each node starts at a hash of its name, so that nodes seldom choose the same block.
func (m *nodeState) candidate(p *pool, w poolconf.Want, anyOf bool) (netip.Prefix, bool, error) {
	pick := 0
	if anyOf {
		var b [1]byte
		if _, err := m.cfg.Random.Read(b[:]); err != nil {
			return netip.Prefix{}, false, fmt.Errorf("choice of a block: %w", err)
		}
		pick = int(b[0] % 16)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.clock.now()
	if most := p.spec.MaxBlocks; most > 0 && p.blockCount() >= most {
		return netip.Prefix{}, false, nil
	}
	var found netip.Prefix
	for _, s := range w.Spans {
		for _, r := range p.spec.Regions {
			if !s.Overlaps(r.CIDR) {
				continue
			}
			part := addrspan.Clip([]addrspan.Span{s}, addrspan.Whole(r.CIDR))[0]
			middle := part.From
			if p.spec.IsClusterPool() {
				middle = firstBlock(part, r, m.cfg.Node)
			}
			for _, row := range [][2]netip.Addr{{middle, part.To}, {part.From, middle.Prev()}} {
				if cidr := p.unclaimedBetween(row[0], row[1], r, w, now, &pick); cidr.IsValid() {
					found = cidr
				}
				if pick < 0 {
					return found, true, nil
				}
			}
		}
	}
	return found, found.IsValid(), nil
}

// unclaimedBetween returns the pick-th unclaimed block between two addresses, or the last one; pick is counted down.
func (p *pool) unclaimedBetween(
	from, to netip.Addr, r model.AddressRegion, w poolconf.Want, now time.Time, pick *int,
) (found netip.Prefix) {
	for a := from; a.IsValid() && !to.Less(a) && *pick >= 0; {
		cidr := netip.PrefixFrom(a, r.BlockSize).Masked()
		if i := slices.IndexFunc(p.spec.Excluded, func(x model.ExcludedRange) bool {
			return x.CIDR.Bits() <= cidr.Bits() && x.CIDR.Contains(cidr.Addr())
		}); i >= 0 { // it may be too large to iterate over
			a = addrspan.Last(p.spec.Excluded[i].CIDR.Masked()).Next()
			continue
		}
		if p.unclaimed(cidr) && !p.justVanished(cidr, now) && p.hasAddressFor(cidr, w) {
			found = cidr
			*pick--
		}
		a = addrspan.Last(cidr).Next()
	}
	return found
}

// firstBlock returns the first address of the block at which a node starts its search in a region.
func firstBlock(part addrspan.Span, r model.AddressRegion, node string) netip.Addr {
	sum := fnv.New32a()
	_, _ = sum.Write([]byte(node))
	bits := min(r.BlockSize-r.CIDR.Bits(), 31) // bits that number the blocks of the region
	n := uint64(sum.Sum32()) % (1 << bits)
	b := r.CIDR.Masked().Addr().AsSlice()
	for i := range bits {
		if n>>i&1 == 1 {
			bit := r.BlockSize - 1 - i
			b[bit/8] |= 0x80 >> (bit % 8)
		}
	}
	a, _ := netip.AddrFromSlice(b)
	if !part.Contains(a) {
		return part.From
	}
	return a
}

// blockCount returns how many blocks this node has.
func (p *pool) blockCount() (n int) {
	for _, b := range p.order {
		if !b.borrowed() && b.state != lost {
			n++
		}
	}
	return n
}

// unclaimed reports whether no node is known to have the block, or one that overlaps it.
func (p *pool) unclaimed(cidr netip.Prefix) bool {
	if _, ours := p.blocks[cidr]; ours {
		return false
	}
	_, others := p.remote[cidr]
	return !others && !p.overlaps(cidr)
}

// hasAddressFor reports whether a block has an address for a want.
func (p *pool) hasAddressFor(cidr netip.Prefix, w poolconf.Want) bool {
	found := false
	addrspan.Each(cidr, func(a netip.Addr) bool {
		_, reserved := p.reserved[a]
		_, held := p.held[a]
		found = w.Allows(a) && !reserved && !held && !p.excluded(a)
		return !found
	})
	return found
}
