// SPDX-License-Identifier: Apache-2.0

package blocks

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/model"
)

// registry is the store's objects of pools and blocks: how they are read and changed, and what of them is not this
// node's.
type registry struct {
	cfg       *Config
	clock     *clock
	mem       *memory
	namesakes *namesakes

	mu      sync.Mutex
	missing map[string]time.Time // nodes that have no object, since when
	// clean are the pools in which no other pool has blocks, each with the versions of all pools when that was seen.
	clean map[string]map[string]string
}

// swap writes a block anew. change gets a new number for a claim.
func (rg *registry) swap(
	ctx context.Context, o store.Object, spec model.AddressBlock, change func(*model.AddressBlock, string),
) (store.Object, model.AddressBlock, error) {
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
	if err := rg.cfg.Step.At("before swap"); err != nil {
		return o, spec, err
	}
	got, err := store.Bounded(ctx, func(ctx context.Context) (store.Object, error) {
		return rg.cfg.Objects.CompareAndSwap(ctx, store.AddressBlocks(), o.Version, next)
	})
	if err == nil {
		err = rg.cfg.Step.At("after swap")
	}
	if err != nil {
		return o, spec, store.Unreachable("block "+spec.CIDR.String(), err)
	}
	return got, spec, nil
}

// read is a block as the store has it.
func (rg *registry) read(
	ctx context.Context, poolName string, cidr netip.Prefix,
) (store.Object, model.AddressBlock, error) {
	kind := store.AddressBlocks()
	o, err := store.Bounded(ctx, func(ctx context.Context) (store.Object, error) {
		return rg.cfg.Objects.Get(ctx, kind, kind.Key("", store.BlockName(poolName, cidr)))
	})
	if err != nil {
		return o, model.AddressBlock{}, store.Unreachable("block "+cidr.String(), err)
	}
	spec, err := o.AddressBlock()
	return o, spec, err
}

// look learns of all blocks of a pool.
func (rg *registry) look(ctx context.Context, p *pool) error {
	all, err := store.Bounded(ctx, func(ctx context.Context) ([]store.Object, error) {
		return rg.cfg.Objects.List(ctx, store.AddressBlocks())
	})
	if err != nil {
		return store.Unreachable("list of blocks", err)
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

// number is a new number for a claim.
func (rg *registry) number() (string, error) {
	var b [8]byte
	if _, err := io.ReadFull(rg.cfg.Random, b[:]); err != nil {
		return "", fmt.Errorf("number for a claim: %w", err)
	}
	claim := hex.EncodeToString(b[:])
	rg.namesakes.sends(claim)
	return claim, nil
}

func (rg *registry) hasObject(ctx context.Context, node string) (bool, error) {
	kind := store.Nodes()
	_, err := store.Bounded(ctx, func(ctx context.Context) (store.Object, error) {
		return rg.cfg.Objects.Get(ctx, kind, kind.Key("", node))
	})
	if errors.Is(err, store.ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, store.Unreachable("node "+node, err)
	}
	return true, nil
}

// isGone reports whether a block's node has had no object for long enough, as this node's own clock has it, or the
// controller's.
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
		if spec.Wanted = slices.DeleteFunc(slices.Clone(spec.Wanted), func(n string) bool {
			return n == rg.cfg.Node
		}); hungry {
			spec.Wanted = append(spec.Wanted, rg.cfg.Node)
		}
		next, err := o.Edited(store.WithWanted(spec.Wanted))
		if err != nil {
			return err
		}
		got, err := store.Bounded(ctx, func(ctx context.Context) (store.Object, error) {
			return rg.cfg.Objects.CompareAndSwapStatus(ctx, store.AddressPools(), o.Version, next)
		})
		if err == nil {
			rg.mem.mu.Lock()
			rg.mem.see(p, got, spec)
			rg.mem.mu.Unlock()
			return nil
		}
		if !errors.Is(err, store.ErrConflict) && !errors.Is(err, store.ErrNotFound) {
			return store.Unreachable("pool "+p.name, err)
		}
	}
	return nil // others are as hungry: the pool says so already
}

func (rg *registry) readPool(ctx context.Context, p *pool) error {
	kind := store.AddressPools()
	o, err := store.Bounded(ctx, func(ctx context.Context) (store.Object, error) {
		return rg.cfg.Objects.Get(ctx, kind, kind.Key("", p.name))
	})
	if errors.Is(err, store.ErrNotFound) {
		rg.mem.mu.Lock()
		p.object = store.Object{} // the next claim makes it again, or says that it is missing
		rg.mem.mu.Unlock()
		return nil
	}
	if err != nil {
		return store.Unreachable("pool "+p.name, err)
	}
	spec, err := o.AddressPool()
	if err != nil {
		return err
	}
	rg.mem.mu.Lock()
	rg.mem.see(p, o, spec)
	rg.mem.mu.Unlock()
	return nil
}
