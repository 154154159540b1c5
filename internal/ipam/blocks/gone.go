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
func (e *Engine) say(ctx context.Context, p *pool, hungry bool) error {
	const tries = 10
	for range tries {
		if err := e.readPool(ctx, p); err != nil {
			return err
		}
		e.mu.Lock()
		o, spec := p.object, p.spec
		e.mu.Unlock()
		if o.Version == "" || slices.Contains(spec.Wanted, e.cfg.Node) == hungry {
			return nil
		}
		if spec.Wanted = slices.DeleteFunc(slices.Clone(spec.Wanted), func(n string) bool { return n == e.cfg.Node }); hungry {
			spec.Wanted = append(spec.Wanted, e.cfg.Node)
		}
		next, err := o.Edited(store.WithWanted(spec.Wanted))
		if err != nil {
			return err
		}
		got, err := Bounded(ctx, func(ctx context.Context) (store.Object, error) {
			return e.cfg.Objects.CompareAndSwapStatus(ctx, store.AddressPools(), o.Version, next)
		})
		if err == nil {
			e.mu.Lock()
			e.see(p, got, spec)
			e.mu.Unlock()
			return nil
		}
		if !errors.Is(err, store.ErrConflict) && !errors.Is(err, store.ErrNotFound) {
			return Unreachable("pool "+p.name, err)
		}
	}
	return nil // others are as hungry: the pool says so already
}

// sated notes that a call does not wait any more. That the node has enough is told behind the answer.
func (e *Engine) sated(p *pool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	p.hungry--
	e.wake()
}

// quiet tells the other nodes that nobody waits here. The caller has the pool's turn.
func (e *Engine) quiet(ctx context.Context, p *pool) error {
	e.mu.Lock()
	over := p.hungry == 0 && e.hungry(p)
	e.mu.Unlock()
	if !over {
		return nil
	}
	return e.say(ctx, p, false)
}

// takeOver takes a block of a node that does not exist any more. That a node does not answer is no reason: its pods may
// well be alive. Where this node itself has no object, missing objects say nothing; where the controller is apart, its word is needed, too.
func (e *Engine) takeOver(ctx context.Context, p *pool, w want) (bool, error) {
	e.mu.Lock()
	if most := p.spec.MaxBlocks; most > 0 && p.own() >= most {
		e.mu.Unlock()
		return false, nil
	}
	var blocks []model.AddressBlock
	for _, spec := range p.others {
		if p.useful(spec.CIDR, w) && (spec.Orphaned || !e.cfg.Apart) {
			blocks = append(blocks, spec)
		}
	}
	e.mu.Unlock()
	for _, spec := range blocks {
		gone, err := e.isGone(ctx, spec)
		if err != nil {
			return false, err
		}
		if !gone {
			continue
		}
		o, now, err := e.read(ctx, p.name, spec.CIDR)
		if err != nil || now.Node != spec.Node || now.Claim != spec.Claim || e.cfg.Apart && !now.Orphaned {
			return false, ignoreConflict(err)
		}
		got, now, err := e.swap(ctx, o, now, func(s *model.AddressBlock, claim string) { s.Node, s.Claim = e.cfg.Node, claim })
		if err != nil {
			return false, ignoreConflict(err)
		}
		e.cfg.Log.Warn("block of a node that is gone taken over", "pool", p.name, "block", spec.CIDR.String(), "node", spec.Node)
		if err := e.promises(ctx, p, spec.CIDR); err != nil {
			return false, err
		}
		e.own(p, got, now)
		return true, e.save()
	}
	return false, nil
}

// isGone reports whether a block's node has had no object for long enough, as this node's own clock has it, or the controller's.
func (e *Engine) isGone(ctx context.Context, spec model.AddressBlock) (bool, error) {
	node := spec.Node
	if e.cfg.Nodes != nil {
		if nodes := e.cfg.Nodes(); nodes == nil || nodes[node] {
			return false, nil // what is missing there is asked for
		}
	}
	there, err := e.hasObject(ctx, node)
	if err != nil {
		return false, err
	}
	self := there
	if !there {
		if self, err = e.hasObject(ctx, e.cfg.Node); err != nil {
			return false, err
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if there || !self {
		delete(e.missing, node)
		return false, nil
	}
	if e.cfg.Apart {
		return spec.Orphaned, nil // the controller has waited
	}
	since, known := e.missing[node]
	if !known {
		e.missing[node] = e.now()
		return false, nil
	}
	return e.now().Sub(since) >= e.cfg.Gone, nil
}

func (e *Engine) hasObject(ctx context.Context, node string) (bool, error) {
	kind := store.Nodes()
	_, err := Bounded(ctx, func(ctx context.Context) (store.Object, error) {
		return e.cfg.Objects.Get(ctx, kind, kind.Key("", node))
	})
	if errors.Is(err, store.ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, Unreachable("node "+node, err)
	}
	return true, nil
}
