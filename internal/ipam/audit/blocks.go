// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/model"
)

// pool returns the pool of that name, nil if there is none.
func (p *Report) pool(name string) *model.AddressPool {
	i, found := slices.BinarySearchFunc(p.Pools, name, func(pool model.AddressPool, name string) int {
		return cmp.Compare(pool.Name, name)
	})
	if !found {
		return nil
	}
	return &p.Pools[i]
}

// overlaps returns, by the index of a block, another block that contains it: of the same pool, or both of the cluster's
// network. Prefixes that overlap contain each other, so that those which contain a block are a stack.
func (p *Report) overlaps() map[int]*model.AddressBlock {
	order := make([]int, len(p.Blocks))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(i, j int) int {
		a, b := p.Blocks[i].CIDR, p.Blocks[j].CIDR
		return cmp.Or(a.Addr().Compare(b.Addr()), a.Bits()-b.Bits(), i-j)
	})
	cluster := map[string]bool{}
	for _, pool := range p.Pools {
		cluster[pool.Name] = pool.IsClusterPool()
	}
	out := map[int]*model.AddressBlock{}
	var open []int
	for _, i := range order {
		b := p.Blocks[i]
		for len(open) > 0 && !p.Blocks[open[len(open)-1]].CIDR.Overlaps(b.CIDR) {
			open = open[:len(open)-1]
		}
		for _, j := range slices.Backward(open) {
			if o := p.Blocks[j]; o.Pool == b.Pool || cluster[o.Pool] && cluster[b.Pool] {
				out[i] = &p.Blocks[j]
				break
			}
		}
		open = append(open, i)
	}
	return out
}

// examineConditions reports pools that are not allocatable because of an error.
func (p *Report) examineConditions(raw map[string]store.Object) {
	conditions := model.PoolConditions(p.Pools)
	for _, pool := range p.Pools {
		switch c := conditions[pool.Name]; c.Reason {
		case model.ReasonBadSelector, model.ReasonBadEncapsulation, model.ReasonCIDROverlap:
			p.found(NotAllocatable, raw[store.AddressPools().Key("", pool.Name).String()], nil, "", "it is not allocatable: %s", c.Message)
		}
	}
}

// blockIndex finds the block that has an address.
type blockIndex struct {
	p  *Report
	at map[blockKey]int
}

type blockKey struct {
	pool string
	cidr netip.Prefix
}

func (p *Report) indexBlocks() blockIndex {
	at := make(map[blockKey]int, len(p.Blocks))
	for i, b := range p.Blocks {
		at[blockKey{b.Pool, b.CIDR}] = i
	}
	return blockIndex{p, at}
}

// block returns the block of a pool that has an address, nil if no node has it.
func (f blockIndex) block(pool *model.AddressPool, a netip.Addr) *model.AddressBlock {
	for _, r := range pool.Regions {
		if !r.CIDR.Contains(a) {
			continue
		}
		if i, is := f.at[blockKey{pool.Name, netip.PrefixFrom(a, r.BlockSize).Masked()}]; is {
			return &f.p.Blocks[i]
		}
	}
	i := slices.IndexFunc(f.p.Blocks, func(b model.AddressBlock) bool { return b.Pool == pool.Name && b.CIDR.Contains(a) })
	if i < 0 {
		return nil
	}
	return &f.p.Blocks[i]
}
