// SPDX-License-Identifier: Apache-2.0

package blocks

import (
	"context"
	"net/netip"
	"strings"

	"github.com/weft-net/weft/internal/model"
)

// absorb makes addresses a part of their block again that were ceded to the node that has the block now: it took the block
// over from the node that ceded them. What is held of them stays held. The caller has the pool's turn.
func (e *Engine) absorb(ctx context.Context, p *pool) error {
	for _, b := range e.ownBlocks(p) {
		own := e.cededToSelf(p, b)
		if len(own) == 0 {
			continue
		}
		o, spec, err := e.swap(ctx, b.object, b.spec, func(s *model.AddressBlock, _ string) {
			for _, a := range own {
				s.Ceded = lacking(s.Ceded, a)
			}
		})
		if err != nil {
			e.mu.Lock()
			b.stale = true
			e.mu.Unlock()
			e.wake()
			return ignoreConflict(err)
		}
		e.mu.Lock()
		for _, a := range own {
			if p.blocks[netip.PrefixFrom(a, a.BitLen())] != nil {
				p.put(netip.PrefixFrom(a, a.BitLen()), nil)
			}
		}
		e.mu.Unlock()
		e.flush(ctx, own) // another machine of this name may have had them
		e.ceded(b, o, spec)
		if err := e.save(); err != nil {
			return err
		}
	}
	return nil
}

// cededToSelf are the addresses of a block of this node that are ceded to this node.
func (e *Engine) cededToSelf(p *pool, b *block) (own []netip.Addr) {
	e.mu.Lock()
	stands, spec, known := b.stands, b.spec, b.object.Version != ""
	e.mu.Unlock()
	if stands != owned || !known {
		return nil
	}
	for a, with := range spec.Ceded {
		if node, claim, _ := strings.Cut(with, "/"); node != e.cfg.Node || claim == "" {
			continue
		}
		if !e.strange(machineOf(with), thing(p.name, netip.PrefixFrom(a, a.BitLen())), with) {
			own = append(own, a)
		}
	}
	return own
}
