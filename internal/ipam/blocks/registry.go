// SPDX-License-Identifier: Apache-2.0

package blocks

import (
	"context"
	"errors"
	"net/netip"
	"strings"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/model"
)

// swap writes a block anew. change gets a new number for a claim.
func (rg *registry) swap(ctx context.Context, o store.Object, spec model.AddressBlock, change func(*model.AddressBlock, string)) (store.Object, model.AddressBlock, error) {
	claim, err := rg.number()
	if err != nil {
		return o, spec, err
	}
	change(&spec, claim)
	if spec.Node == rg.cfg.Node {
		spec.Machine, spec.Orphaned = rg.cfg.Machine, false
	}
	next, err := store.AddressBlockObject(o, spec)
	if err != nil {
		return o, spec, err
	}
	if err := rg.cfg.step("before swap"); err != nil {
		return o, spec, err
	}
	got, err := Bounded(ctx, func(ctx context.Context) (store.Object, error) {
		return rg.cfg.Objects.CompareAndSwap(ctx, store.AddressBlocks(), o.Version, next)
	})
	if err == nil {
		err = rg.cfg.step("after swap")
	}
	if err != nil {
		return o, spec, Unreachable("block "+spec.CIDR.String(), err)
	}
	return got, spec, nil
}

// read is a block as the store has it.
func (rg *registry) read(ctx context.Context, poolName string, cidr netip.Prefix) (store.Object, model.AddressBlock, error) {
	kind := store.AddressBlocks()
	o, err := Bounded(ctx, func(ctx context.Context) (store.Object, error) {
		return rg.cfg.Objects.Get(ctx, kind, kind.Key("", store.BlockName(poolName, cidr)))
	})
	if err != nil {
		return o, model.AddressBlock{}, Unreachable("block "+cidr.String(), err)
	}
	spec, err := o.AddressBlock()
	return o, spec, err
}

// look learns of all blocks of a pool.
func (rg *registry) look(ctx context.Context, p *pool) error {
	all, err := Bounded(ctx, func(ctx context.Context) ([]store.Object, error) {
		return rg.cfg.Objects.List(ctx, store.AddressBlocks())
	})
	if err != nil {
		return Unreachable("list of blocks", err)
	}
	others := map[netip.Prefix]model.AddressBlock{}
	for _, o := range all {
		spec, err := o.AddressBlock()
		if err != nil || spec.Pool != p.name {
			continue
		}
		if spec.Node != rg.cfg.Node || !rg.has(p, spec.CIDR) && !rg.namesakes.ours(spec) {
			others[spec.CIDR] = spec
		}
	}
	rg.mem.mu.Lock()
	defer rg.mem.mu.Unlock()
	p.others = others
	rg.meetRivals(p, all)
	return nil
}

// has tells whether this node has a block.
func (rg *registry) has(p *pool, cidr netip.Prefix) bool {
	rg.mem.mu.Lock()
	defer rg.mem.mu.Unlock()
	return p.blocks[cidr] != nil
}

// lookUnlessLive learns of all blocks where no watch tells of them.
func (rg *registry) lookUnlessLive(ctx context.Context, p *pool) error {
	rg.mem.mu.Lock()
	live := rg.mem.live
	rg.mem.mu.Unlock()
	if live {
		return nil
	}
	return rg.look(ctx, p)
}

// Bounded bounds one request.
func Bounded[T any](ctx context.Context, do func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, request)
	defer cancel()
	return do(ctx)
}

// errSilent is in every error of a request that was not answered.
var errSilent = errors.New("the cluster's store does not answer")

// Unreachable is the fault of a request that failed without an answer; answers stay as they are.
func Unreachable(what string, err error) error {
	for _, answer := range []error{store.ErrNotFound, store.ErrExists, store.ErrConflict, errSilent} {
		if errors.Is(err, answer) {
			return err
		}
	}
	return model.Faultf(model.CodeTryAgain, "", "%s: %w: %w", what, errSilent, err)
}

// exhausted says who has the addresses.
func (ob *obtainer) exhausted(p *pool, w want) error {
	ob.mem.mu.Lock()
	defer ob.mem.mu.Unlock()
	if w.addr.IsValid() {
		delete(p.asking, w.addr) // the next time it is asked anew
		r, _ := p.region(w.addr)
		with := p.others[netip.PrefixFrom(w.addr, r.BlockSize).Masked()]
		if b := p.blockOf(w.addr); b != nil {
			with.Node, _, _ = strings.Cut(b.spec.Ceded[w.addr], "/")
		}
		return model.Faultf(model.CodeTryAgain, "it is free when that node has given it back",
			"%s: address %s is with node %q, which does not answer", w.field, w.addr, with.Node)
	}
	nodes := map[string]bool{}
	for cidr, b := range p.others {
		for _, s := range w.spans {
			if s.overlaps(cidr) {
				nodes[b.Node] = true
			}
		}
	}
	if most := p.spec.MaxBlocks; most > 0 && p.own() >= most {
		return model.Faultf(model.CodeExhausted, "raise it, or delete pods of this node",
			"%s: no address is free in %s of pool %q: this node has %d blocks already, and may have no more (maxBlocksPerNode %d)", w.field, w.id(), p.name, p.own(), most)
	}
	here := 0
	for a := range p.held {
		if inSpans(w.spans, a) {
			here++
		}
	}
	return model.Faultf(model.CodeExhausted, "widen the range, or delete pods that use it",
		"%s: no address is free in %s of pool %q: %d of %d are held on this node, and %d other nodes have the rest",
		w.field, w.id(), p.name, here, count(w.spans), len(nodes))
}
