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
	"github.com/weft-net/weft/internal/model"
)

// certain gets this node a certain address: by claiming its block, by taking it where its node ceded it, or by asking
// that node. False means: asked, not answered yet.
func (ob *obtainer) certain(ctx context.Context, p *pool, w want) (bool, error) {
	if w.machine {
		ob.mem.mark(p, w.addr, w.claim) // whatever becomes of this, nobody else gets it here
	}
	ob.mem.mu.Lock()
	r, ok := p.region(w.addr)
	ob.mem.mu.Unlock()
	if !ok {
		return false, model.Faultf(model.CodeInvalidConf, "choose an address of the pool", "%s: address %s is not in pool %q",
			w.field, w.addr, p.name)
	}
	cidr := netip.PrefixFrom(w.addr, r.BlockSize).Masked()
	o, spec, err := ob.registry.read(ctx, p.name, cidr)
	if errors.Is(err, store.ErrNotFound) {
		return ob.affinity.create(ctx, p, cidr)
	}
	if err != nil {
		return false, err
	}
	if ob.namesakes.ours(spec) || ob.registry.has(p, cidr) && spec.Node == ob.cfg.Node {
		return ob.certainOurs(ctx, p, w, o, spec)
	}
	ob.mem.mu.Lock()
	p.others[cidr] = spec
	asked := p.asking[w.addr]
	ob.mem.mu.Unlock()
	with, ceded := spec.Ceded[w.addr]
	switch {
	case ceded && (with == "" || with == ob.cfg.Node+"/"):
		return ob.affinity.grab(ctx, p, w.addr, w.claim, o, spec)
	case ceded && w.claim == "":
		return false, taken(w, "node "+with[:max(0, strings.IndexByte(with, '/'))])
	case spec.Asked[w.addr] == ob.mem.asks(w):
		return false, nil
	case spec.Asked[w.addr] != "" || asked:
		ob.mem.mu.Lock()
		delete(p.asking, w.addr)
		ob.mem.mu.Unlock()
		return false, taken(w, "somebody on node "+spec.Node)
	}
	return ob.askNode(ctx, p, w, o, spec)
}

// askNode writes that this node asks for an address of a block. False means: asked, not answered yet.
func (ob *obtainer) askNode(
	ctx context.Context, p *pool, w want, o store.Object, spec model.AddressBlock,
) (bool, error) {
	_, _, err := ob.registry.swap(ctx, o, spec, func(s *model.AddressBlock, _ string) {
		s.Asked = having(s.Asked, w.addr, ob.mem.asks(w))
	})
	if err != nil {
		return errors.Is(err, store.ErrConflict) || errors.Is(err, store.ErrNotFound), store.IgnoreConflict(err)
	}
	ob.mem.mu.Lock()
	p.asking[w.addr] = true
	ob.mem.mu.Unlock()
	return false, nil
}

// certainOurs deals with a certain address of a block that is this node's, and that memory could not give.
func (ob *obtainer) certainOurs(
	ctx context.Context, p *pool, w want, o store.Object, spec model.AddressBlock,
) (bool, error) {
	ob.mem.mu.Lock()
	b := p.blocks[spec.CIDR]
	ob.mem.mu.Unlock()
	switch {
	case b == nil:
		return true, ob.affinity.adopt(ctx, p, o, spec)
	case b.stands == releasing:
		if there, err := ob.affinity.refresh(ctx, p, b); err != nil || !there {
			return true, err
		}
		return true, ob.affinity.renew(ctx, p, b)
	}
	with := spec.Ceded[w.addr]
	ob.mem.mu.Lock()
	asked := p.asking[w.addr]
	if with == "" || asked && spec.Asked[w.addr] == "" {
		delete(p.asking, w.addr)
	}
	b.learn(o, spec, ob.clock.now())
	nobodys := b.nobodys(w.addr, with, ob.clock.now())
	ob.mem.mu.Unlock()
	switch {
	case nobodys:
		return ob.affinity.takeBack(ctx, p, w)
	case w.claim == "" || asked && spec.Asked[w.addr] == "":
		return false, taken(w, "node "+with[:max(0, strings.IndexByte(with, '/'))])
	case spec.Asked[w.addr] == ob.mem.asks(w):
		return false, nil
	}
	return ob.askNode(ctx, p, w, o, spec) // the claim was last used there
}

// grab writes this node's name to a ceded address, and the claim whose it is, if any: should this engine not live to
// remember it, the next one finds it there.
func (af *affinity) grab(
	ctx context.Context, p *pool, a netip.Addr, of string, o store.Object, spec model.AddressBlock,
) (bool, error) {
	if of == "" && spec.Ceded[a] == af.cfg.Node+"/" { // offered, perhaps to a claim whose pod did not live to take it
		if err := af.promises(ctx, p, netip.PrefixFrom(a, a.BitLen())); err != nil {
			return false, err
		}
	}
	mine := ""
	got, spec, err := af.registry.swap(ctx, o, spec, func(s *model.AddressBlock, claim string) {
		mine = af.namesakes.signed(claim) + claims.ForWhom(of)
		s.Ceded, s.Granted = having(s.Ceded, a, af.cfg.Node+"/"+mine), af.requests.ungrant(s.Granted, a)
	})
	if errors.Is(err, store.ErrConflict) || errors.Is(err, store.ErrNotFound) {
		return true, af.meet(ctx, p, spec.CIDR) // look again
	}
	if err != nil {
		return false, err
	}
	af.single(p, a, mine, got, spec)
	return true, af.journal.save()
}

// single takes a ceded address into use.
func (af *affinity) single(p *pool, a netip.Addr, claim string, o store.Object, spec model.AddressBlock) {
	af.mem.mu.Lock()
	defer af.mem.mu.Unlock()
	p.others[spec.CIDR] = spec
	delete(p.asking, a)
	one := netip.PrefixFrom(a, a.BitLen())
	p.put(one, &block{
		cidr: one, parent: spec.CIDR, claim: claim, stands: owned, object: o, spec: spec, away: map[netip.Addr]bool{},
	})
}

// takeCeded takes an address that another node ceded to whoever needs it.
func (ob *obtainer) takeCeded(ctx context.Context, p *pool, w want) (bool, error) {
	for _, found := range ob.cededFor(p, w) {
		cidr, a := found.CIDR, found.addr
		o, spec, err := ob.registry.read(ctx, p.name, cidr)
		if errors.Is(err, store.ErrNotFound) {
			return true, nil // the whole block is free now
		}
		if err != nil {
			return false, err
		}
		if with, ceded := spec.Ceded[a]; !ceded || with != "" && with != ob.cfg.Node+"/" {
			continue
		}
		if got, err := ob.affinity.grab(ctx, p, a, "", o, spec); got || err != nil {
			return got, err
		}
	}
	return false, nil
}

type cededAddr struct {
	model.AddressBlock
	addr netip.Addr
}

func (ob *obtainer) cededFor(p *pool, w want) []cededAddr {
	ob.mem.mu.Lock()
	defer ob.mem.mu.Unlock()
	var out []cededAddr
	for _, spec := range p.others {
		for a, with := range spec.Ceded {
			_, reserved := p.reserved[a]
			if (with == "" || with == ob.cfg.Node+"/") && w.allows(a) && !reserved {
				out = append(out, cededAddr{spec, a})
			}
		}
	}
	return out
}

// takeBack takes addresses of this node's own blocks back that nobody took.
func (af *affinity) takeBack(ctx context.Context, p *pool, w want) (bool, error) {
	for _, b := range af.mem.ownBlocks(p) {
		useful, offered := b.returned(w, af.clock.now())
		if !useful || b.stands != owned {
			continue
		}
		if offered { // it may have been offered to a claim
			if err := af.promises(ctx, p, b.cidr); err != nil {
				return false, err
			}
		}
		if there, err := af.refresh(ctx, p, b); err != nil || !there {
			return false, err
		}
		now := af.clock.now()
		o, spec, err := af.registry.swap(ctx, b.object, b.spec, func(s *model.AddressBlock, _ string) {
			for a, with := range s.Ceded {
				if b.nobodys(a, with, now) {
					s.Ceded = lacking(s.Ceded, a)
				}
			}
		})
		if err != nil {
			return false, store.IgnoreConflict(err)
		}
		af.mem.ceded(b, o, spec)
		return true, af.journal.save()
	}
	return false, nil
}

// returned tells whether the block ceded something for a want that is with nobody, and whether some of all that was
// offered to somebody before.
func (b *block) returned(w want, now time.Time) (useful, offered bool) {
	for a, with := range b.spec.Ceded {
		back := b.nobodys(a, with, now)
		useful, offered = useful || back && w.allows(a), offered || back && with != ""
	}
	return useful, offered
}
