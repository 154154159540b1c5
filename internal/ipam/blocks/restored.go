// SPDX-License-Identifier: Apache-2.0

package blocks

import (
	"context"
	"errors"
	"maps"
	"net/netip"
	"time"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/model"
)

// A datastore that was restored from a backup knows an earlier state: it lacks blocks that were claimed since, and has
// blocks that were released since, which other nodes may have claimed. The addresses of running pods do not follow it:
// they must not be allocated again until the pods are gone, of which the kubelet deletes those that the restored API
// server does not know. So a node that has addresses in a block
//
//   - writes the block again if it is missing;
//   - borrows these addresses if the block is another node's, also without an offer.
//
// To leave other nodes the time to do so, a node that finds a block in its name that it does not know allocates nothing
// from it for restoreGrace, and none claims a block whose object vanished that short ago, unless the pool is exhausted.
const restoreGrace = 10 * time.Second

// pauseBlock allocates nothing from a block for restoreGrace.
func (m *nodeState) pauseBlock(p *pool, cidr netip.Prefix) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if b := p.blocks[cidr]; b != nil {
		b.pausedUntil = m.clock.now().Add(restoreGrace)
	}
}

// noteVanishedLocked notes which blocks of other nodes are not among the objects.
func (p *pool) noteVanishedLocked(all []store.Object, now time.Time) {
	there := map[netip.Prefix]bool{}
	for _, o := range all {
		if spec, err := o.AddressBlock(); err == nil && spec.Pool == p.name {
			there[spec.CIDR] = true
		}
	}
	for cidr := range p.remote {
		if !there[cidr] {
			p.vanished[cidr] = now
		}
	}
	maps.DeleteFunc(p.vanished, func(cidr netip.Prefix, _ time.Time) bool { return there[cidr] || !p.justVanished(cidr, now) })
}

// justVanished reports whether a block may be written again by its node soon.
func (p *pool) justVanished(cidr netip.Prefix, now time.Time) bool {
	since, is := p.vanished[cidr]
	return is && now.Sub(since) < restoreGrace && !p.exhausted()
}

// blockInUse reports whether a pod has an address of a block, or another node has borrowed one.
func (m *nodeState) blockInUse(p *pool, b *block) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(p.heldIn(b)) > 0 || len(b.lent) > 0 && !b.borrowed()
}

// heldIn returns the holders of a block's addresses that are not those of a borrowed one.
func (p *pool) heldIn(b *block) map[netip.Addr]holder {
	out := map[netip.Addr]holder{}
	for a, h := range p.held {
		if b.cidr.Contains(a) && h.key != (model.AttachmentKey{}) {
			if one := p.blocks[netip.PrefixFrom(a, a.BitLen())]; one == nil || one == b {
				out[a] = h
			}
		}
	}
	return out
}

// rewrite creates the object of a block again as it was last known, if it is in use. The next pass reads it.
func (af *affinity) rewrite(ctx context.Context, p *pool, b *block) error {
	if !af.state.blockInUse(p, b) {
		return nil
	}
	af.state.mu.Lock()
	spec := b.spec
	b.stale = true
	known := p.object.Version != ""
	af.state.mu.Unlock()
	if !spec.CIDR.IsValid() && !b.borrowed() { // it has not been read since the start
		spec = model.AddressBlock{Pool: p.name, CIDR: b.cidr, Node: af.cfg.Node, MachineID: af.cfg.MachineID, Claim: b.claim}
	}
	if !known || !spec.CIDR.IsValid() {
		return nil
	}
	spec.Requested, spec.Granted = nil, nil
	o, err := store.AddressBlockObject(store.Object{}, spec)
	if err != nil {
		return err
	}
	af.cfg.Log.Warn("block is missing in the datastore and in use; agent writes it again", "pool", p.name,
		"block", spec.CIDR.String(), "node", spec.Node)
	_, err = store.WithTimeout(ctx, func(ctx context.Context) (store.Object, error) {
		return af.cfg.Objects.Create(ctx, store.AddressBlocks(), o)
	})
	if errors.Is(err, store.ErrExists) {
		return nil
	}
	return store.Unreachable("block "+spec.CIDR.String(), err)
}

// borrowHeld borrows the addresses of this node's pods in a block that is another node's.
func (af *affinity) borrowHeld(ctx context.Context, p *pool, b *block, o store.Object, spec model.AddressBlock) error {
	if spec.Node == af.cfg.Node {
		return nil
	}
	af.state.mu.Lock()
	held := p.heldIn(b)
	af.state.mu.Unlock()
	for a, h := range held {
		with := spec.Lent[a]
		if with != "" && with != af.cfg.Node+"/" {
			af.cfg.Log.Error("address of a pod is another node's", "pool", p.name, "address", a.String(), "holder", h.String(),
				"node", spec.Node, "borrower", with)
			continue
		}
		if _, err := af.claimBorrowed(ctx, p, a, h.claim, o, spec); err != nil {
			return err
		}
		var err error
		if o, spec, err = af.registry.readBlock(ctx, p.name, b.parent); err != nil {
			return err
		}
	}
	af.state.mu.Lock()
	defer af.state.mu.Unlock()
	if len(held) == 0 || b.borrowed() {
		return nil
	}
	if b.stale = len(p.heldIn(b)) > 0; !b.stale {
		p.setBlockLocked(b.cidr, nil)
	}
	return nil
}
