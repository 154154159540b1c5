// SPDX-License-Identifier: Apache-2.0

package blocks

import (
	"context"
	"errors"
	"net/netip"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/ipam"
	"github.com/weft-net/weft/internal/ipam/addressclaims"
	"github.com/weft-net/weft/internal/ipam/claims"
	"github.com/weft-net/weft/internal/ipam/poolconf"
	"github.com/weft-net/weft/internal/model"
)

// Blocks of dead nodes: acquire.go, takeOverBlock.
//
// The address of a virtual machine moves with the VM, also when the node that had it does not answer, or has it in use:
// the VM runs on one node only, and that node is the one that reclaims the address. Three things keep the address
// unique:
//
//   - the new node is written into the block's object by a compare-and-swap of a version that was read before the claim
//     was verified to still name the address;
//   - a node does not allocate an address of a claim as long as it sees the claim, whichever node has the address;
//   - before it allocates such an address again it writes the block's object, so that transfers which began before that
//     fail.

// Transfer moves the addresses of a claim to an attachment that was on standby.
func (a *Allocator) Transfer(ctx context.Context, req ipam.Request) error {
	c, err := a.e.claims.Stored(ctx, req)
	if err != nil || c.ID == "" {
		return err
	}
	if c.StoreSilent {
		return model.Errorf(model.CodeTryAgain, "", "%s: %w", claims.Describe(c.ID), store.ErrNoAnswer)
	}
	for _, addr := range req.Held {
		p, err := a.e.poolFor(ctx, req, addr)
		if err == nil {
			err = a.e.acquirer.takeOverVMAddress(ctx, p, c, addr, holder{req.Key(), c.ID})
		}
		if err != nil {
			return err
		}
	}
	return a.e.claims.RecordUse(ctx, c)
}

// takeOverVMAddress allocates one address of a claim to an attachment of this node, whichever node had it. If it needs
// a grant of the controller, it waits for that without the pool's claim lock.
func (ob *acquirer) takeOverVMAddress(ctx context.Context, p *pool, c addressclaims.Claim, a netip.Addr, h holder) error {
	wait := ob.requests.Grant(c.ID, c.Pod, a)
	for {
		ob.state.mu.Lock()
		changed := p.changed
		ob.state.mu.Unlock()
		err := ob.takeOverVMAddressNow(ctx, p, c, a, h)
		var lacks *ungranted
		if !errors.As(err, &lacks) {
			return err
		}
		if err := wait.Next(ctx, changed, lacks.block); err != nil {
			return err
		}
	}
}

// takeOverVMAddressNow is takeOverVMAddress without the wait for a grant.
func (ob *acquirer) takeOverVMAddressNow(ctx context.Context, p *pool, c addressclaims.Claim, a netip.Addr, h holder) error {
	select {
	case p.claimLock <- struct{}{}:
		defer func() { <-p.claimLock }()
	case <-ctx.Done():
		return model.Errorf(model.CodeTryAgain, "", "%s: waiting for others that claim addresses: %w",
			claims.Describe(c.ID), ctx.Err())
	}
	if err := ob.assignVMAddress(ctx, p, a, c); err != nil {
		return err
	}
	ob.state.mu.Lock()
	defer ob.state.mu.Unlock()
	if was, held := p.held[a]; held && was.claim != h.claim && was != h {
		return model.Errorf(model.CodeTryAgain, "", "%s: address %s is taken by %s", claims.Describe(c.ID), a, was)
	}
	p.assignLocked(a, h, ob.clock.now())
	return nil
}

// assignVMAddress assigns an address of a claim to this node, whichever node has it. The caller has the pool's claim
// lock.
func (ob *acquirer) assignVMAddress(ctx context.Context, p *pool, a netip.Addr, c addressclaims.Claim) error {
	ob.state.mu.Lock()
	r, ok := p.region(a)
	ob.state.mu.Unlock()
	if !ok {
		return model.Errorf(model.CodeTryAgain, "", "%s: address %s is not in pool %q any more",
			claims.Describe(c.ID), a, p.name)
	}
	cidr := netip.PrefixFrom(a, r.BlockSize).Masked()
	const tries = 8
	for range tries {
		o, spec, err := ob.registry.readBlock(ctx, p.name, cidr)
		if errors.Is(err, store.ErrNotFound) {
			if err := ob.journal.reserveForClaim(p, a, c.ID); err != nil {
				return err
			}
			if got, err := ob.affinity.claimBlock(ctx, p, cidr); got || err != nil {
				return err
			}
			continue
		}
		if err != nil {
			return err
		}
		if err := ob.claims.Verify(ctx, c, a); err != nil {
			return err
		}
		done, err := ob.tryAssignVMAddress(ctx, p, a, c.ID, o, spec)
		if done || store.IgnoreConflict(err) != nil {
			return err
		}
	}
	return model.Errorf(model.CodeTryAgain, "", "%s: block %s of address %s keeps changing",
		claims.Describe(c.ID), cidr, a)
}

// lastResort handles a request that no node has answered in time: a VM reclaims its address, others fail.
func (ob *acquirer) lastResort(ctx context.Context, p *pool, w poolconf.Want, h holder) (netip.Addr, error) {
	if !w.VM {
		return netip.Addr{}, ob.exhausted(p, w)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), requestTimeout)
	defer cancel()
	if a, ok, err := ob.allocateUnclaimed(ctx, w, h); ok || err != nil { // the answer may have come without an event
		return a, err
	}
	ob.cfg.Log.Warn("agent reclaims the address of a VM from a node that does not answer", "claim", w.Claim,
		"address", w.Addr.String())
	if ob.cfg.SeparateController {
		ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), requestTimeout+ob.cfg.WaitLimit)
		defer cancel()
	}
	if err := ob.takeOverVMAddress(ctx, p, addressclaims.Claim{ID: w.Claim, Pod: w.Pod}, w.Addr, h); err != nil {
		return netip.Addr{}, err
	}
	return w.Addr, nil
}

// tryAssignVMAddress writes the block's object if needed; false: the object has changed meanwhile.
func (ob *acquirer) tryAssignVMAddress(
	ctx context.Context, p *pool, a netip.Addr, claim string, o store.Object, spec model.AddressBlock,
) (bool, error) {
	_, isLent := spec.Lent[a]
	ob.state.mu.Lock()
	own, single := p.blocks[spec.CIDR], p.blocks[netip.PrefixFrom(a, a.BitLen())]
	ob.state.mu.Unlock()
	if ob.duplicates.Owns(spec) || own != nil && spec.Node == ob.cfg.Node {
		switch {
		case own == nil:
			return false, ob.affinity.adopt(ctx, p, o, spec)
		case own.state != owned:
			if there, err := ob.affinity.refresh(ctx, p, own); err != nil || !there {
				return false, err
			}
			return false, ob.affinity.renew(ctx, p, own)
		case !isLent && !own.lent[a]:
			return true, nil
		case !ob.requests.MayTake(spec, a, claim):
			return false, &ungranted{spec}
		}
		if err := ob.journal.reserveForClaim(p, a, claim); err != nil {
			return false, err
		}
		got, spec, err := ob.registry.updateBlock(ctx, o, spec, func(s *model.AddressBlock, claim string) {
			s.Claim, s.Lent, s.Requested = claim, withoutEntry(s.Lent, a), withoutEntry(s.Requested, a)
			s.Granted = ob.requests.Ungrant(s.Granted, a)
		})
		if err != nil {
			return false, err
		}
		ob.affinity.addBlock(p, got, spec)
		return true, ob.journal.save()
	}
	if borrowed := single != nil && single.cidr != single.parent && single.state == owned; borrowed &&
		spec.Lent[a] == ob.cfg.Node+"/"+single.claim {
		return true, nil
	}
	if !ob.requests.MayTake(spec, a, claim) {
		return false, &ungranted{spec}
	}
	ownEntry := ""
	ob.state.markClaim(p, a, claim) // the journal is written below
	got, spec, err := ob.registry.updateBlock(ctx, o, spec, func(s *model.AddressBlock, number string) {
		ownEntry = ob.duplicates.WithMachineID(number) + claims.EntrySuffix(claim)
		s.Lent, s.Requested = withEntry(s.Lent, a, ob.cfg.Node+"/"+ownEntry), withoutEntry(s.Requested, a)
		s.Granted = ob.requests.Ungrant(s.Granted, a)
	})
	if err != nil {
		return false, err
	}
	ob.affinity.addBorrowed(p, a, ownEntry, got, spec)
	return true, ob.journal.save()
}

// ungranted is the error of a transfer that needs a grant of the controller.
type ungranted struct{ block model.AddressBlock }

func (*ungranted) Error() string { return "the controller has not granted it" }
