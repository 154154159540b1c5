// SPDX-License-Identifier: Apache-2.0

package blocks

import (
	"context"
	"errors"
	"slices"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/model"
)

// say tells the other nodes that this one found the pool exhausted, or that this is over.
func (rg *registry) say(ctx context.Context, p *pool, hungry bool) error {
	const tries = 10
	for range tries {
		if err := rg.readPool(ctx, p); err != nil {
			return err
		}
		rg.mem.mu.Lock()
		o, spec := p.object, p.spec
		rg.mem.mu.Unlock()
		if o.Version == "" || slices.Contains(spec.Wanted, rg.cfg.Node) == hungry {
			return nil
		}
		if spec.Wanted = slices.DeleteFunc(slices.Clone(spec.Wanted), func(n string) bool { return n == rg.cfg.Node }); hungry {
			spec.Wanted = append(spec.Wanted, rg.cfg.Node)
		}
		next, err := o.Edited(store.WithWanted(spec.Wanted))
		if err != nil {
			return err
		}
		got, err := Bounded(ctx, func(ctx context.Context) (store.Object, error) {
			return rg.cfg.Objects.CompareAndSwapStatus(ctx, store.AddressPools(), o.Version, next)
		})
		if err == nil {
			rg.mem.mu.Lock()
			rg.mem.see(p, got, spec)
			rg.mem.mu.Unlock()
			return nil
		}
		if !errors.Is(err, store.ErrConflict) && !errors.Is(err, store.ErrNotFound) {
			return Unreachable("pool "+p.name, err)
		}
	}
	return nil // others are as hungry: the pool says so already
}

// sated notes that a call does not wait any more. That the node has enough is told behind the answer.
func (ob *obtainer) sated(p *pool) {
	ob.mem.mu.Lock()
	defer ob.mem.mu.Unlock()
	p.hungry--
	ob.kick.Notify()
}

// quiet tells the other nodes that nobody waits here. The caller has the pool's turn.
func (rt *returner) quiet(ctx context.Context, p *pool) error {
	rt.mem.mu.Lock()
	over := p.hungry == 0 && rt.mem.hungry(p)
	rt.mem.mu.Unlock()
	if !over {
		return nil
	}
	return rt.registry.say(ctx, p, false)
}

// takeOver takes a block of a node that does not exist any more. That a node does not answer is no reason: its pods may
// well be alive. Where this node itself has no object, missing objects say nothing; where the controller is apart, its word is needed, too.
func (ob *obtainer) takeOver(ctx context.Context, p *pool, w want) (bool, error) {
	ob.mem.mu.Lock()
	if most := p.spec.MaxBlocks; most > 0 && p.own() >= most {
		ob.mem.mu.Unlock()
		return false, nil
	}
	var blocks []model.AddressBlock
	for _, spec := range p.others {
		if p.useful(spec.CIDR, w) && (spec.Orphaned || !ob.cfg.Apart) {
			blocks = append(blocks, spec)
		}
	}
	ob.mem.mu.Unlock()
	for _, spec := range blocks {
		gone, err := ob.registry.isGone(ctx, spec)
		if err != nil {
			return false, err
		}
		if !gone {
			continue
		}
		o, now, err := ob.registry.read(ctx, p.name, spec.CIDR)
		if err != nil || now.Node != spec.Node || now.Claim != spec.Claim || ob.cfg.Apart && !now.Orphaned {
			return false, ignoreConflict(err)
		}
		got, now, err := ob.registry.swap(ctx, o, now, func(s *model.AddressBlock, claim string) { s.Node, s.Claim = ob.cfg.Node, claim })
		if err != nil {
			return false, ignoreConflict(err)
		}
		ob.cfg.Log.Warn("block of a node that is gone taken over", "pool", p.name, "block", spec.CIDR.String(), "node", spec.Node)
		if err := ob.affinity.promises(ctx, p, spec.CIDR); err != nil {
			return false, err
		}
		ob.affinity.own(p, got, now)
		return true, ob.journal.save()
	}
	return false, nil
}

// isGone reports whether a block's node has had no object for long enough, as this node's own clock has it, or the controller's.
func (rg *registry) isGone(ctx context.Context, spec model.AddressBlock) (bool, error) {
	node := spec.Node
	if rg.cfg.Nodes != nil {
		if nodes := rg.cfg.Nodes(); nodes == nil || nodes[node] {
			return false, nil // what is missing there is asked for
		}
	}
	there, err := rg.hasObject(ctx, node)
	if err != nil {
		return false, err
	}
	self := there
	if !there {
		if self, err = rg.hasObject(ctx, rg.cfg.Node); err != nil {
			return false, err
		}
	}
	rg.mu.Lock()
	defer rg.mu.Unlock()
	if there || !self {
		delete(rg.missing, node)
		return false, nil
	}
	if rg.cfg.Apart {
		return spec.Orphaned, nil // the controller has waited
	}
	since, known := rg.missing[node]
	if !known {
		rg.missing[node] = rg.clock.now()
		return false, nil
	}
	return rg.clock.now().Sub(since) >= rg.cfg.Gone, nil
}

func (rg *registry) hasObject(ctx context.Context, node string) (bool, error) {
	kind := store.Nodes()
	_, err := Bounded(ctx, func(ctx context.Context) (store.Object, error) {
		return rg.cfg.Objects.Get(ctx, kind, kind.Key("", node))
	})
	if errors.Is(err, store.ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, Unreachable("node "+node, err)
	}
	return true, nil
}
