// SPDX-License-Identifier: Apache-2.0

package blocks

import (
	"context"
	"net/netip"
	"strings"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/model"
)

// absorb makes addresses a part of their block again that were ceded to the node that has the block now: it took the
// block over from the node that ceded them. What is held of them stays held. The caller has the pool's turn.
func (rt *returner) absorb(ctx context.Context, p *pool) error {
	for _, b := range rt.mem.ownBlocks(p) {
		own := rt.cededToSelf(p, b)
		if len(own) == 0 {
			continue
		}
		o, spec, err := rt.registry.swap(ctx, b.object, b.spec, func(s *model.AddressBlock, _ string) {
			for _, a := range own {
				s.Ceded = lacking(s.Ceded, a)
			}
		})
		if err != nil {
			rt.mem.mu.Lock()
			b.stale = true
			rt.mem.mu.Unlock()
			rt.kick.Notify()
			return store.IgnoreConflict(err)
		}
		rt.mem.mu.Lock()
		for _, a := range own {
			if p.blocks[netip.PrefixFrom(a, a.BitLen())] != nil {
				p.put(netip.PrefixFrom(a, a.BitLen()), nil)
			}
		}
		rt.mem.mu.Unlock()
		rt.affinity.flush(ctx, own) // another machine of this name may have had them
		rt.mem.ceded(b, o, spec)
		if err := rt.journal.save(); err != nil {
			return err
		}
	}
	return nil
}

// cededToSelf are the addresses of a block of this node that are ceded to this node.
func (rt *returner) cededToSelf(p *pool, b *block) (own []netip.Addr) {
	rt.mem.mu.Lock()
	stands, spec, known := b.stands, b.spec, b.object.Version != ""
	rt.mem.mu.Unlock()
	if stands != owned || !known {
		return nil
	}
	for a, with := range spec.Ceded {
		if node, claim, _ := strings.Cut(with, "/"); node != rt.cfg.Node || claim == "" {
			continue
		}
		if !rt.namesakes.strange(machineOf(with), thing(p.name, netip.PrefixFrom(a, a.BitLen())), with) {
			own = append(own, a)
		}
	}
	return own
}
