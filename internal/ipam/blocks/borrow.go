// SPDX-License-Identifier: Apache-2.0

package blocks

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"time"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/ipam/claims"
	"github.com/weft-net/weft/internal/ipam/poolconf"
	"github.com/weft-net/weft/internal/model"
)

// specificAddress acquires a specific address: by claiming its block, by borrowing it where its node lends it, or by a
// request to that node. False: the request is not answered yet.
func (ob *acquirer) specificAddress(ctx context.Context, p *pool, w poolconf.Want) (bool, error) {
	if w.VM {
		ob.state.markClaim(p, w.Addr, w.Claim) // whatever happens next, this node allocates it to nothing else
	}
	ob.state.mu.Lock()
	r, ok := p.region(w.Addr)
	ob.state.mu.Unlock()
	if !ok {
		return false, model.Errorf(model.CodeInvalidConf, "choose an address of the pool", "%s: address %s is not in pool %q",
			w.Field, w.Addr, p.name)
	}
	cidr := netip.PrefixFrom(w.Addr, r.BlockSize).Masked()
	o, spec, err := ob.registry.readBlock(ctx, p.name, cidr)
	if errors.Is(err, store.ErrNotFound) {
		ob.state.mu.Lock()
		wait := p.justVanished(cidr, ob.clock.now())
		ob.state.mu.Unlock()
		if wait {
			return false, nil
		}
		return ob.affinity.claimBlock(ctx, p, cidr)
	}
	if err != nil {
		return false, err
	}
	if ob.duplicates.Owns(spec) || ob.registry.hasBlock(p, cidr) && spec.Node == ob.cfg.Node {
		return ob.specificFromOwnBlock(ctx, p, w, o, spec)
	}
	ob.state.mu.Lock()
	p.remote[cidr] = spec
	asked := p.requested[w.Addr]
	ob.state.mu.Unlock()
	with, isLent := spec.Lent[w.Addr]
	switch {
	case isLent && (with == "" || with == ob.cfg.Node+"/"):
		return ob.affinity.claimBorrowed(ctx, p, w.Addr, w.Claim, o, spec)
	case isLent && w.Claim == "":
		return false, taken(w, "node "+with[:max(0, strings.IndexByte(with, '/'))])
	case spec.Requested[w.Addr] == ob.state.requester(w):
		return false, nil
	case spec.Requested[w.Addr] != "" || asked:
		ob.state.mu.Lock()
		delete(p.requested, w.Addr)
		ob.state.mu.Unlock()
		return false, taken(w, "an attachment on node "+spec.Node)
	}
	return ob.requestFromNode(ctx, p, w, o, spec)
}

// requestFromNode writes this node's request for an address into the block's object. False: the request is not answered
// yet.
func (ob *acquirer) requestFromNode(
	ctx context.Context, p *pool, w poolconf.Want, o store.Object, spec model.AddressBlock,
) (bool, error) {
	_, _, err := ob.registry.updateBlock(ctx, o, spec, func(s *model.AddressBlock, _ string) {
		s.Requested = withEntry(s.Requested, w.Addr, ob.state.requester(w))
	})
	if err != nil {
		return errors.Is(err, store.ErrConflict) || errors.Is(err, store.ErrNotFound), store.IgnoreConflict(err)
	}
	ob.state.mu.Lock()
	p.requested[w.Addr] = true
	ob.state.mu.Unlock()
	return false, nil
}

// specificFromOwnBlock acquires a specific address of one of this node's blocks that is not free in it.
func (ob *acquirer) specificFromOwnBlock(
	ctx context.Context, p *pool, w poolconf.Want, o store.Object, spec model.AddressBlock,
) (bool, error) {
	ob.state.mu.Lock()
	b := p.blocks[spec.CIDR]
	ob.state.mu.Unlock()
	switch {
	case b == nil:
		return true, ob.affinity.adopt(ctx, p, o, spec)
	case b.state == releasing:
		if there, err := ob.affinity.refresh(ctx, p, b); err != nil || !there {
			return true, err
		}
		return true, ob.affinity.renew(ctx, p, b)
	}
	with := spec.Lent[w.Addr]
	ob.state.mu.Lock()
	asked := p.requested[w.Addr]
	if with == "" || asked && spec.Requested[w.Addr] == "" {
		delete(p.requested, w.Addr)
	}
	b.updateLocked(o, spec, ob.clock.now())
	unowned := b.reclaimable(w.Addr, with, ob.clock.now())
	ob.state.mu.Unlock()
	switch {
	case unowned:
		return ob.affinity.takeBackLent(ctx, p, w)
	case w.Claim == "" || asked && spec.Requested[w.Addr] == "":
		return false, taken(w, "node "+with[:max(0, strings.IndexByte(with, '/'))])
	case spec.Requested[w.Addr] == ob.state.requester(w):
		return false, nil
	}
	return ob.requestFromNode(ctx, p, w, o, spec) // that node used the claim last
}

// claimBorrowed writes this node, and the claim that owns the address if any, as the borrower of an address into the
// block's object. If this engine ends before it has written its journal, the next one finds it there.
func (af *affinity) claimBorrowed(
	ctx context.Context, p *pool, a netip.Addr, of string, o store.Object, spec model.AddressBlock,
) (bool, error) {
	if of == "" &&
		spec.Lent[a] == af.cfg.Node+"/" { // offered, perhaps to a claim whose pod ended before it took the address
		if err := af.markClaimed(ctx, p, netip.PrefixFrom(a, a.BitLen()), false); err != nil {
			return false, err
		}
	}
	ownEntry := ""
	got, spec, err := af.registry.updateBlock(ctx, o, spec, func(s *model.AddressBlock, claim string) {
		ownEntry = af.duplicates.WithMachineID(claim) + claims.EntrySuffix(of)
		s.Lent, s.Granted = withEntry(s.Lent, a, af.cfg.Node+"/"+ownEntry), af.requests.Ungrant(s.Granted, a)
	})
	if errors.Is(err, store.ErrConflict) || errors.Is(err, store.ErrNotFound) {
		return true, af.readOwner(ctx, p, spec.CIDR) // check again
	}
	if err != nil {
		return false, err
	}
	af.addBorrowed(p, a, ownEntry, got, spec)
	return true, af.journal.save()
}

// addBorrowed starts allocating a borrowed address.
func (af *affinity) addBorrowed(p *pool, a netip.Addr, claim string, o store.Object, spec model.AddressBlock) {
	af.state.mu.Lock()
	defer af.state.mu.Unlock()
	p.remote[spec.CIDR] = spec
	delete(p.requested, a)
	one := netip.PrefixFrom(a, a.BitLen())
	p.setBlockLocked(one, &block{
		cidr: one, parent: spec.CIDR, claim: claim, state: owned, object: o, spec: spec, lent: map[netip.Addr]bool{},
	})
}

// borrow borrows an address that another node lends to any node.
func (ob *acquirer) borrow(ctx context.Context, p *pool, w poolconf.Want) (bool, error) {
	for _, found := range ob.borrowableFor(p, w) {
		cidr, a := found.CIDR, found.addr
		o, spec, err := ob.registry.readBlock(ctx, p.name, cidr)
		if errors.Is(err, store.ErrNotFound) {
			return true, nil // the whole block is free now
		}
		if err != nil {
			return false, err
		}
		if with, isLent := spec.Lent[a]; !isLent || with != "" && with != ob.cfg.Node+"/" {
			continue
		}
		if got, err := ob.affinity.claimBorrowed(ctx, p, a, "", o, spec); got || err != nil {
			return got, err
		}
	}
	return false, nil
}

// borrowableAddr is an address that another node lends to any node, or to this one, and its block.
type borrowableAddr struct {
	model.AddressBlock
	addr netip.Addr
}

func (ob *acquirer) borrowableFor(p *pool, w poolconf.Want) []borrowableAddr {
	ob.state.mu.Lock()
	defer ob.state.mu.Unlock()
	var out []borrowableAddr
	for _, spec := range p.remote {
		for a, with := range spec.Lent {
			_, reserved := p.reserved[a]
			if (with == "" || with == ob.cfg.Node+"/") && w.Allows(a) && !reserved {
				out = append(out, borrowableAddr{spec, a})
			}
		}
	}
	return out
}

// takeBackLent reclaims addresses of this node's blocks that were lent and that no node has taken.
func (af *affinity) takeBackLent(ctx context.Context, p *pool, w poolconf.Want) (bool, error) {
	for _, b := range af.state.ownBlocks(p) {
		wanted, offered := b.reclaimableFor(w, af.clock.now())
		if !wanted || b.state != owned {
			continue
		}
		if offered { // the offer may have been for a claim
			if err := af.markClaimed(ctx, p, b.cidr, false); err != nil {
				return false, err
			}
		}
		if there, err := af.refresh(ctx, p, b); err != nil || !there {
			return false, err
		}
		now := af.clock.now()
		o, spec, err := af.registry.updateBlock(ctx, b.object, b.spec, func(s *model.AddressBlock, _ string) {
			for a, with := range s.Lent {
				if b.reclaimable(a, with, now) {
					s.Lent = withoutEntry(s.Lent, a)
				}
			}
		})
		if err != nil {
			return false, store.IgnoreConflict(err)
		}
		af.state.setLent(b, o, spec)
		return true, af.journal.save()
	}
	return false, nil
}

// reclaimableFor reports whether the block lends an address for a want that no node has taken, and whether any such
// address was offered to one node.
func (b *block) reclaimableFor(w poolconf.Want, now time.Time) (wanted, offered bool) {
	for a, with := range b.spec.Lent {
		back := b.reclaimable(a, with, now)
		wanted, offered = wanted || back && w.Allows(a), offered || back && with != ""
	}
	return wanted, offered
}
