// SPDX-License-Identifier: Apache-2.0

package blocks

import (
	"context"
	"net/netip"
	"strings"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/model"
)

// mergeLent merges addresses that this node borrowed from a block back into the block, after it has taken over the
// block itself. Allocated addresses stay allocated. The caller has the pool's claim lock.
func (rt *releaser) mergeLent(ctx context.Context, p *pool) error {
	for _, b := range rt.state.ownBlocks(p) {
		own := rt.lentToSelf(p, b)
		if len(own) == 0 {
			continue
		}
		o, spec, err := rt.registry.updateBlock(ctx, b.object, b.spec, func(s *model.AddressBlock, _ string) {
			for _, a := range own {
				s.Lent = withoutEntry(s.Lent, a)
			}
		})
		if err != nil {
			rt.state.mu.Lock()
			b.stale = true
			rt.state.mu.Unlock()
			rt.kick.Notify()
			return store.IgnoreConflict(err)
		}
		rt.state.mu.Lock()
		for _, a := range own {
			if p.blocks[netip.PrefixFrom(a, a.BitLen())] != nil {
				p.setBlockLocked(netip.PrefixFrom(a, a.BitLen()), nil)
			}
		}
		rt.state.mu.Unlock()
		rt.affinity.flush(ctx, own) // another host of this node name may have used them
		rt.state.setLent(b, o, spec)
		if err := rt.journal.save(); err != nil {
			return err
		}
	}
	return nil
}

// lentToSelf returns the addresses of a block of this node that are lent to this node.
func (rt *releaser) lentToSelf(p *pool, b *block) (own []netip.Addr) {
	rt.state.mu.Lock()
	before, spec, known := b.state, b.spec, b.object.Version != ""
	rt.state.mu.Unlock()
	if before != owned || !known {
		return nil
	}
	for a, with := range spec.Lent {
		if node, claim, _ := strings.Cut(with, "/"); node != rt.cfg.Node || claim == "" {
			continue
		}
		if !rt.duplicates.LentToDuplicate(p.name, a, with) {
			own = append(own, a)
		}
	}
	return own
}
