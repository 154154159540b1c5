// SPDX-License-Identifier: Apache-2.0

package blocks

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/store"
)

// certain gets this node a certain address: by claiming its block, by taking it where its node ceded it, or by asking that
// node. False means: asked, not answered yet.
func (e *Engine) certain(ctx context.Context, p *pool, w want) (bool, error) {
	e.mu.Lock()
	r, ok := p.region(w.addr)
	e.mu.Unlock()
	if !ok {
		return false, model.Faultf(model.CodeInvalidConf, "choose an address of the pool", "%s: address %s is not in pool %q", w.field, w.addr, p.name)
	}
	cidr := netip.PrefixFrom(w.addr, r.BlockSize).Masked()
	o, spec, err := e.read(ctx, p.name, cidr)
	if errors.Is(err, store.ErrNotFound) {
		return e.create(ctx, p, cidr)
	}
	if err != nil {
		return false, err
	}
	if spec.Node == e.cfg.Node {
		return e.certainOurs(ctx, p, w, o, spec)
	}
	e.mu.Lock()
	p.others[cidr] = spec
	asked := p.asking[w.addr]
	e.mu.Unlock()
	with, ceded := spec.Ceded[w.addr]
	switch {
	case ceded && (with == "" || with == e.cfg.Node+"/"):
		return e.grab(ctx, p, w.addr, o, spec)
	case ceded:
		return false, taken(w, "node "+with[:max(0, strings.IndexByte(with, '/'))])
	case spec.Asked[w.addr] == e.asks(w):
		return false, nil
	case spec.Asked[w.addr] != "" || asked:
		e.mu.Lock()
		delete(p.asking, w.addr)
		e.mu.Unlock()
		return false, taken(w, "somebody on node "+spec.Node)
	}
	_, _, err = e.swap(ctx, o, spec, func(s *model.AddressBlock, _ string) { s.Asked = having(s.Asked, w.addr, e.asks(w)) })
	if err != nil {
		return errors.Is(err, store.ErrConflict) || errors.Is(err, store.ErrNotFound), ignoreConflict(err)
	}
	e.mu.Lock()
	p.asking[w.addr] = true
	e.mu.Unlock()
	return false, nil
}

// certainOurs deals with a certain address of a block that is this node's, and that memory could not give.
func (e *Engine) certainOurs(ctx context.Context, p *pool, w want, o store.Object, spec model.AddressBlock) (bool, error) {
	e.mu.Lock()
	b := p.blocks[spec.CIDR]
	e.mu.Unlock()
	switch {
	case b == nil:
		return true, e.adopt(ctx, p, o, spec)
	case b.stands == releasing:
		if there, err := e.refresh(ctx, p, b); err != nil || !there {
			return true, err
		}
		return true, e.renew(ctx, p, b)
	}
	if with := spec.Ceded[w.addr]; with != "" {
		return false, taken(w, "node "+with[:max(0, strings.IndexByte(with, '/'))])
	}
	return e.takeBack(ctx, p, w)
}

// grab writes this node's name to a ceded address.
func (e *Engine) grab(ctx context.Context, p *pool, a netip.Addr, o store.Object, spec model.AddressBlock) (bool, error) {
	mine := ""
	got, spec, err := e.swap(ctx, o, spec, func(s *model.AddressBlock, claim string) {
		mine = claim
		s.Ceded = having(s.Ceded, a, e.cfg.Node+"/"+claim)
	})
	if errors.Is(err, store.ErrConflict) || errors.Is(err, store.ErrNotFound) {
		return true, e.meet(ctx, p, spec.CIDR) // look again
	}
	if err != nil {
		return false, err
	}
	e.single(p, a, mine, got, spec)
	return true, e.save()
}

// single takes a ceded address into use.
func (e *Engine) single(p *pool, a netip.Addr, claim string, o store.Object, spec model.AddressBlock) {
	e.mu.Lock()
	defer e.mu.Unlock()
	p.others[spec.CIDR] = spec
	delete(p.asking, a)
	one := netip.PrefixFrom(a, a.BitLen())
	p.put(one, &block{cidr: one, parent: spec.CIDR, claim: claim, stands: owned, object: o, spec: spec, away: map[netip.Addr]bool{}})
}

// takeCeded takes an address that another node ceded to whoever needs it.
func (e *Engine) takeCeded(ctx context.Context, p *pool, w want) (bool, error) {
	for _, found := range e.cededFor(p, w) {
		cidr, a := found.CIDR, found.addr
		o, spec, err := e.read(ctx, p.name, cidr)
		if errors.Is(err, store.ErrNotFound) {
			return true, nil // the whole block is free now
		}
		if err != nil {
			return false, err
		}
		if with, ceded := spec.Ceded[a]; !ceded || with != "" && with != e.cfg.Node+"/" {
			continue
		}
		if got, err := e.grab(ctx, p, a, o, spec); got || err != nil {
			return got, err
		}
	}
	return false, nil
}

type cededAddr struct {
	model.AddressBlock
	addr netip.Addr
}

func (e *Engine) cededFor(p *pool, w want) []cededAddr {
	e.mu.Lock()
	defer e.mu.Unlock()
	var out []cededAddr
	for _, spec := range p.others {
		for a, with := range spec.Ceded {
			_, reserved := p.reserved[a]
			if (with == "" || with == e.cfg.Node+"/") && w.allows(a) && !reserved {
				out = append(out, cededAddr{spec, a})
			}
		}
	}
	return out
}

// takeBack takes addresses of this node's own blocks back that nobody took.
func (e *Engine) takeBack(ctx context.Context, p *pool, w want) (bool, error) {
	for _, b := range e.ownBlocks(p) {
		useful := false
		for a, with := range b.spec.Ceded {
			useful = useful || with == "" && w.allows(a)
		}
		if !useful || b.stands != owned {
			continue
		}
		if there, err := e.refresh(ctx, p, b); err != nil || !there {
			return false, err
		}
		o, spec, err := e.swap(ctx, b.object, b.spec, func(s *model.AddressBlock, _ string) {
			for a, with := range s.Ceded {
				if with == "" {
					s.Ceded = lacking(s.Ceded, a)
				}
			}
		})
		if err != nil {
			return false, ignoreConflict(err)
		}
		e.ceded(b, o, spec)
		return true, e.save()
	}
	return false, nil
}

// ceded takes over a block that was just written, with exactly what is ceded now.
func (e *Engine) ceded(b *block, o store.Object, spec model.AddressBlock) {
	e.mu.Lock()
	defer e.mu.Unlock()
	b.object, b.spec = o, spec
	clear(b.away)
	for a := range spec.Ceded {
		b.away[a] = true
	}
}

// ownBlocks are the whole blocks of this node.
func (e *Engine) ownBlocks(p *pool) []*block {
	e.mu.Lock()
	defer e.mu.Unlock()
	var out []*block
	for _, b := range p.order {
		if !b.single() {
			out = append(out, b)
		}
	}
	return out
}

// answer gives other nodes the addresses that they ask for, or says no; and where the pool is exhausted for somebody, all
// that is free.
func (e *Engine) answer(ctx context.Context, p *pool) error {
	for _, b := range e.ownBlocks(p) {
		e.mu.Lock()
		give, refuse := e.toCede(p, b)
		for a := range give {
			b.away[a] = true // from here on nobody here gets it
		}
		e.mu.Unlock()
		if len(give)+len(refuse) == 0 {
			continue
		}
		if err := e.save(); err != nil {
			return err
		}
		o, spec, err := e.swap(ctx, b.object, b.spec, func(s *model.AddressBlock, _ string) {
			for a, to := range give {
				s.Ceded, s.Asked = having(s.Ceded, a, to), lacking(s.Asked, a)
			}
			for _, a := range refuse {
				s.Asked = lacking(s.Asked, a)
			}
		})
		if errors.Is(err, store.ErrConflict) || errors.Is(err, store.ErrNotFound) {
			// It was not done: this was the only request, and its answer is here.
			e.mu.Lock()
			for a := range give {
				delete(b.away, a)
			}
			e.mu.Unlock()
			_, err = e.refresh(ctx, p, b)
			e.wake()
		} else if err == nil {
			e.ceded(b, o, spec)
		}
		if err != nil {
			return err
		}
		if err := e.save(); err != nil {
			return err
		}
	}
	return nil
}

// toCede says which addresses of a block go to whom ("" is anybody), and which are refused; the caller holds the lock.
func (e *Engine) toCede(p *pool, b *block) (give map[netip.Addr]string, refuse []netip.Addr) {
	if b.stands != owned || b.object.Version == "" || b.cidr.IsSingleIP() && p.empty(b, e.cfg.Now()) {
		return nil, nil // a block of one address goes back whole
	}
	give = map[netip.Addr]string{}
	now := e.cfg.Now()
	for a, asks := range b.spec.Asked {
		node, claim, _ := strings.Cut(asks, forClaim)
		h, held := p.held[a]
		switch {
		case held && claim != "" && h == (holder{claim: claim}):
			delete(p.held, a) // the claim's address goes where the claim is used
			give[a] = node + "/"
		case held || p.reserved[a].Addr.IsValid() || b.away[a]:
			refuse = append(refuse, a)
		case p.free(b, a, now, false):
			give[a] = node + "/"
		}
	}
	if !p.tight() || e.hungry(p) {
		return give, refuse
	}
	each(b.cidr, func(a netip.Addr) bool {
		if _, is := give[a]; !is && p.free(b, a, now, false) && now.Sub(b.touched) >= hurry {
			give[a] = ""
		}
		return true
	})
	return give, refuse
}

// forClaim stands between the node that asks and the IPAMClaim that it asks for.
const forClaim = " for "

// asks is what this node writes to ask for a certain address.
func (e *Engine) asks(w want) string {
	if w.claim == "" {
		return e.cfg.Node
	}
	return e.cfg.Node + forClaim + w.claim
}

// hungry tells whether this node is one of those that found the pool exhausted.
func (e *Engine) hungry(p *pool) bool { return slices.Contains(p.spec.Wanted, e.cfg.Node) }
