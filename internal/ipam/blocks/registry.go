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
	"github.com/weft-net/weft/internal/ipam/duplicatenode"
	"github.com/weft-net/weft/internal/model"
)

// registry reads and writes the objects of pools and blocks, and tracks those of other nodes.
type registry struct {
	cfg        *Config
	clock      *clock
	state      *nodeState
	duplicates *duplicatenode.Detector

	mu      sync.Mutex
	missing map[string]time.Time // nodes without a Node object, since when
	// clean are the pools that no block of another pool overlaps, with the versions of all pools at that time.
	clean map[string]map[string]string
}

// updateBlock changes a block by compare-and-swap. change gets a new claim.
func (rg *registry) updateBlock(
	ctx context.Context, o store.Object, spec model.AddressBlock, change func(*model.AddressBlock, string),
) (store.Object, model.AddressBlock, error) {
	claim, err := rg.newClaim()
	if err != nil {
		return o, spec, err
	}
	change(&spec, claim)
	if spec.Node == rg.cfg.Node {
		spec.MachineID, spec.Orphaned = rg.cfg.MachineID, false
	}
	next, err := store.AddressBlockObject(o, spec)
	if err != nil {
		return o, spec, err
	}
	if err := rg.cfg.Failpoint.At("before swap"); err != nil {
		return o, spec, err
	}
	got, err := store.WithTimeout(ctx, func(ctx context.Context) (store.Object, error) {
		return rg.cfg.Objects.CompareAndSwap(ctx, store.AddressBlocks(), o.Version, next)
	})
	if err == nil {
		err = rg.cfg.Failpoint.At("after swap")
	}
	if err != nil {
		return o, spec, store.Unreachable("block "+spec.CIDR.String(), err)
	}
	return got, spec, nil
}

// readBlock reads a block's object.
func (rg *registry) readBlock(
	ctx context.Context, poolName string, cidr netip.Prefix,
) (store.Object, model.AddressBlock, error) {
	kind := store.AddressBlocks()
	o, err := store.WithTimeout(ctx, func(ctx context.Context) (store.Object, error) {
		return rg.cfg.Objects.Get(ctx, kind, kind.Key("", store.BlockName(poolName, cidr)))
	})
	if err != nil {
		return o, model.AddressBlock{}, store.Unreachable("block "+cidr.String(), err)
	}
	spec, err := o.AddressBlock()
	return o, spec, err
}

// refreshRemote lists all blocks of a pool.
func (rg *registry) refreshRemote(ctx context.Context, p *pool) error {
	all, err := store.WithTimeout(ctx, func(ctx context.Context) ([]store.Object, error) {
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
		if spec.Node != rg.cfg.Node || !rg.hasBlock(p, spec.CIDR) && !rg.duplicates.Owns(spec) {
			others[spec.CIDR] = spec
		}
	}
	rg.state.mu.Lock()
	defer rg.state.mu.Unlock()
	p.noteVanishedLocked(all, rg.clock.now())
	p.remote = others
	rg.setOverlappingLocked(p, all)
	return nil
}

// hasBlock reports whether this node has a block.
func (rg *registry) hasBlock(p *pool, cidr netip.Prefix) bool {
	rg.state.mu.Lock()
	defer rg.state.mu.Unlock()
	return p.blocks[cidr] != nil
}

// refreshUnlessWatching lists all blocks, unless a watch keeps them current.
func (rg *registry) refreshUnlessWatching(ctx context.Context, p *pool) error {
	rg.state.mu.Lock()
	live := rg.state.watching
	rg.state.mu.Unlock()
	if live {
		return nil
	}
	return rg.refreshRemote(ctx, p)
}

// newClaim returns a new random claim.
func (rg *registry) newClaim() (string, error) {
	var b [8]byte
	if _, err := io.ReadFull(rg.cfg.Random, b[:]); err != nil {
		return "", fmt.Errorf("random claim: %w", err)
	}
	claim := hex.EncodeToString(b[:])
	rg.duplicates.RecordClaim(claim)
	return claim, nil
}

func (rg *registry) nodeExists(ctx context.Context, node string) (bool, error) {
	kind := store.Nodes()
	_, err := store.WithTimeout(ctx, func(ctx context.Context) (store.Object, error) {
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

// isNodeGone reports whether a block's node has had no Node object for Config.NodeGoneAfter, by this node's clock or
// the controller's.
func (rg *registry) isNodeGone(ctx context.Context, spec model.AddressBlock) (bool, error) {
	node := spec.Node
	if rg.cfg.Nodes != nil {
		if nodes := rg.cfg.Nodes(); nodes == nil || nodes[node] {
			return false, nil // only for nodes missing in the cache the API server is asked
		}
	}
	there, err := rg.nodeExists(ctx, node)
	if err != nil {
		return false, err
	}
	self := there
	if !there {
		if self, err = rg.nodeExists(ctx, rg.cfg.Node); err != nil {
			return false, err
		}
	}
	rg.mu.Lock()
	defer rg.mu.Unlock()
	if there || !self {
		delete(rg.missing, node)
		return false, nil
	}
	if rg.cfg.SeparateController {
		return spec.Orphaned, nil // the controller has waited for its NodeGoneAfter
	}
	since, known := rg.missing[node]
	if !known {
		rg.missing[node] = rg.clock.now()
		return false, nil
	}
	return rg.clock.now().Sub(since) >= rg.cfg.NodeGoneAfter, nil
}

// setExhausted reports to the other nodes that the pool is exhausted on this node, or no longer is.
func (rg *registry) setExhausted(ctx context.Context, p *pool, exhausted bool) error {
	const tries = 10
	for range tries {
		if err := rg.readPool(ctx, p); err != nil {
			return err
		}
		rg.state.mu.Lock()
		o, spec := p.object, p.spec
		rg.state.mu.Unlock()
		if o.Version == "" || slices.Contains(spec.ExhaustedOn, rg.cfg.Node) == exhausted {
			return nil
		}
		if spec.ExhaustedOn = slices.DeleteFunc(slices.Clone(spec.ExhaustedOn), func(n string) bool {
			return n == rg.cfg.Node
		}); exhausted {
			spec.ExhaustedOn = append(spec.ExhaustedOn, rg.cfg.Node)
		}
		next, err := o.Edited(store.WithWanted(spec.ExhaustedOn))
		if err != nil {
			return err
		}
		got, err := store.WithTimeout(ctx, func(ctx context.Context) (store.Object, error) {
			return rg.cfg.Objects.CompareAndSwapStatus(ctx, store.AddressPools(), o.Version, next)
		})
		if err == nil {
			rg.state.mu.Lock()
			rg.state.updatePoolLocked(p, got, spec)
			rg.state.mu.Unlock()
			return nil
		}
		if !errors.Is(err, store.ErrConflict) && !errors.Is(err, store.ErrNotFound) {
			return store.Unreachable("pool "+p.name, err)
		}
	}
	return nil // other nodes write at the same time: the pool is reported as exhausted already
}

func (rg *registry) readPool(ctx context.Context, p *pool) error {
	kind := store.AddressPools()
	o, err := store.WithTimeout(ctx, func(ctx context.Context) (store.Object, error) {
		return rg.cfg.Objects.Get(ctx, kind, kind.Key("", p.name))
	})
	if errors.Is(err, store.ErrNotFound) {
		rg.state.mu.Lock()
		p.object = store.Object{} // the next claim creates it again, or reports that it is missing
		rg.state.mu.Unlock()
		return nil
	}
	if err != nil {
		return store.Unreachable("pool "+p.name, err)
	}
	spec, err := o.AddressPool()
	if err != nil {
		return err
	}
	rg.state.mu.Lock()
	rg.state.updatePoolLocked(p, o, spec)
	rg.state.mu.Unlock()
	return nil
}
