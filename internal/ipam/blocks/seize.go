// SPDX-License-Identifier: Apache-2.0

package blocks

import (
	"context"
	"errors"
	"net/netip"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/ipam"
	"github.com/weft-net/weft/internal/ipam/claims"
	"github.com/weft-net/weft/internal/model"
)

// An address that is promised to a virtual machine goes with the machine, also when the node that had it does not
// answer, or has it in use: the machine runs in one place, and who asks here is that place. Three things keep it from
// being anybody else's:
//
//   - the new node's name is written into the block's object by one compare-and-swap, after it was read that the
//     promise still names the address, and of the object as it was before that;
//   - a node keeps the addresses of a promise back for as long as it sees the promise, whoever has them;
//   - and before it gives one to somebody else it writes the block's object anew, so that what was decided before that
//     comes to nothing.

// Take makes the addresses of a promise those of an attachment that stood by.
func (a *Allocator) Take(ctx context.Context, ask ipam.Ask) error {
	c, err := a.e.claims.promised(ctx, ask)
	if err != nil || c.id == "" {
		return err
	}
	if c.silent {
		return model.Faultf(model.CodeTryAgain, "", "%s: %w", claims.Words(c.id), store.ErrSilent)
	}
	c.pod = podOf(ask)
	for _, addr := range ask.Held {
		p, err := a.e.poolFor(ctx, ask, addr)
		if err == nil {
			err = a.e.obtainer.takeOne(ctx, p, c, addr, holder{ask.Key(), c.id})
		}
		if err != nil {
			return err
		}
	}
	return a.e.claims.saveUsed(ctx, c)
}

// takeOne makes one address an attachment's. It is this node's then. Where it takes a grant of the controller, that is
// asked for and awaited; others of this node claim addresses meanwhile.
func (ob *obtainer) takeOne(ctx context.Context, p *pool, c addressClaim, a netip.Addr, h holder) error {
	var wait granting
	for {
		ob.mem.mu.Lock()
		changed := p.changed
		ob.mem.mu.Unlock()
		err := ob.takeNow(ctx, p, c, a, h)
		var lacks *ungranted
		if !errors.As(err, &lacks) {
			return err
		}
		if err := wait.next(ctx, ob.requests, changed, c, a, lacks.block); err != nil {
			return err
		}
	}
}

// takeNow is takeOne that waits for no grant.
func (ob *obtainer) takeNow(ctx context.Context, p *pool, c addressClaim, a netip.Addr, h holder) error {
	select {
	case p.turn <- struct{}{}:
		defer func() { <-p.turn }()
	case <-ctx.Done():
		return model.Faultf(model.CodeTryAgain, "", "%s: waiting for others that claim addresses: %w",
			claims.Words(c.id), ctx.Err())
	}
	if err := ob.seize(ctx, p, a, c); err != nil {
		return err
	}
	ob.mem.mu.Lock()
	defer ob.mem.mu.Unlock()
	if was, held := p.held[a]; held && was.claim != h.claim && was != h {
		return model.Faultf(model.CodeTryAgain, "", "%s: address %s is taken by %s", claims.Words(c.id), a, was)
	}
	p.give(a, h, ob.clock.now())
	return nil
}

// seize makes an address of a claim this node's, whichever node has it. The caller has the pool's turn.
func (ob *obtainer) seize(ctx context.Context, p *pool, a netip.Addr, c addressClaim) error {
	ob.mem.mu.Lock()
	r, ok := p.region(a)
	ob.mem.mu.Unlock()
	if !ok {
		return model.Faultf(model.CodeTryAgain, "", "%s: address %s is not in pool %q any more",
			claims.Words(c.id), a, p.name)
	}
	cidr := netip.PrefixFrom(a, r.BlockSize).Masked()
	const tries = 8
	for range tries {
		o, spec, err := ob.registry.read(ctx, p.name, cidr)
		if errors.Is(err, store.ErrNotFound) {
			if err := ob.journal.keepBack(p, a, c.id); err != nil {
				return err
			}
			if got, err := ob.affinity.create(ctx, p, cidr); got || err != nil {
				return err
			}
			continue
		}
		if err != nil {
			return err
		}
		if err := ob.claims.stillPromised(ctx, c, a); err != nil {
			return err
		}
		done, err := ob.seizeOnce(ctx, p, a, c.id, o, spec)
		if done || store.IgnoreConflict(err) != nil {
			return err
		}
	}
	return model.Faultf(model.CodeTryAgain, "", "%s: block %s of address %s changes all the time",
		claims.Words(c.id), cidr, a)
}

// atLast is what is left to do for a want that nobody has answered.
func (ob *obtainer) atLast(ctx context.Context, p *pool, w want, h holder) (netip.Addr, error) {
	if !w.machine {
		return netip.Addr{}, ob.exhausted(p, w)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), request)
	defer cancel()
	if a, ok, err := ob.fetch(ctx, w, h); ok || err != nil { // it may have answered, and nobody has told
		return a, err
	}
	ob.cfg.Log.Warn("address of a virtual machine is taken from a node that does not answer", "claim", w.claim,
		"address", w.addr.String())
	if ob.cfg.Apart {
		ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), request+ob.cfg.Patience)
		defer cancel()
	}
	if err := ob.takeOne(ctx, p, addressClaim{id: w.claim, pod: w.pod}, w.addr, h); err != nil {
		return netip.Addr{}, err
	}
	return w.addr, nil
}

// seizeOnce writes the block's object, if that is needed; not done: it was changed meanwhile.
func (ob *obtainer) seizeOnce(
	ctx context.Context, p *pool, a netip.Addr, claim string, o store.Object, spec model.AddressBlock,
) (bool, error) {
	_, ceded := spec.Ceded[a]
	ob.mem.mu.Lock()
	own, single := p.blocks[spec.CIDR], p.blocks[netip.PrefixFrom(a, a.BitLen())]
	ob.mem.mu.Unlock()
	if ob.namesakes.ours(spec) || own != nil && spec.Node == ob.cfg.Node {
		switch {
		case own == nil:
			return false, ob.affinity.adopt(ctx, p, o, spec)
		case own.stands != owned:
			if there, err := ob.affinity.refresh(ctx, p, own); err != nil || !there {
				return false, err
			}
			return false, ob.affinity.renew(ctx, p, own)
		case !ceded && !own.away[a]:
			return true, nil
		case !ob.requests.mayTake(spec, a, claim):
			return false, &ungranted{spec}
		}
		if err := ob.journal.keepBack(p, a, claim); err != nil {
			return false, err
		}
		got, spec, err := ob.registry.swap(ctx, o, spec, func(s *model.AddressBlock, claim string) {
			s.Claim, s.Ceded, s.Asked = claim, lacking(s.Ceded, a), lacking(s.Asked, a)
			s.Granted = ob.requests.ungrant(s.Granted, a)
		})
		if err != nil {
			return false, err
		}
		ob.affinity.own(p, got, spec)
		return true, ob.journal.save()
	}
	if mine := single != nil && single.cidr != single.parent && single.stands == owned; mine &&
		spec.Ceded[a] == ob.cfg.Node+"/"+single.claim {
		return true, nil
	}
	if !ob.requests.mayTake(spec, a, claim) {
		return false, &ungranted{spec}
	}
	mine := ""
	ob.mem.mark(p, a, claim) // it is written with what follows
	got, spec, err := ob.registry.swap(ctx, o, spec, func(s *model.AddressBlock, number string) {
		mine = ob.namesakes.signed(number) + claims.ForWhom(claim)
		s.Ceded, s.Asked = having(s.Ceded, a, ob.cfg.Node+"/"+mine), lacking(s.Asked, a)
		s.Granted = ob.requests.ungrant(s.Granted, a)
	})
	if err != nil {
		return false, err
	}
	ob.affinity.single(p, a, mine, got, spec)
	return true, ob.journal.save()
}
