// SPDX-License-Identifier: Apache-2.0

package blocks

import (
	"context"
	"errors"
	"net/netip"
	"strings"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/ipam/claims"
	"github.com/weft-net/weft/internal/model"
)

// answer gives other nodes the addresses that they ask for, or says no; and where the pool is exhausted for somebody,
// all that is free.
func (rt *returner) answer(ctx context.Context, p *pool) error {
	for _, b := range rt.mem.ownBlocks(p) {
		rt.mem.mu.Lock()
		give, refuse := rt.toCede(p, b)
		for a := range give {
			b.away[a] = true // from here on nobody here gets it
		}
		rt.mem.mu.Unlock()
		if len(give)+len(refuse) == 0 {
			continue
		}
		if err := rt.journal.save(); err != nil {
			return err
		}
		o, spec, err := rt.registry.swap(ctx, b.object, b.spec, func(s *model.AddressBlock, _ string) {
			for a, to := range give {
				s.Ceded, s.Asked = having(s.Ceded, a, to), lacking(s.Asked, a)
			}
			for _, a := range refuse {
				s.Asked = lacking(s.Asked, a)
			}
		})
		if errors.Is(err, store.ErrConflict) || errors.Is(err, store.ErrNotFound) {
			// It was not done: this was the only request, and its answer is here.
			rt.mem.mu.Lock()
			for a := range give {
				delete(b.away, a)
			}
			rt.mem.mu.Unlock()
			_, err = rt.affinity.refresh(ctx, p, b)
			rt.kick.Notify()
		} else if err == nil {
			rt.mem.ceded(b, o, spec)
		}
		if err != nil {
			return err
		}
		if err := rt.journal.save(); err != nil {
			return err
		}
	}
	return nil
}

// refuse says no for addresses that were ceded to this node and are in use.
func (rt *returner) refuse(ctx context.Context, p *pool) error {
	rt.mem.mu.Lock()
	var used []*block
	for _, b := range p.order {
		h, held := p.held[b.cidr.Addr()]
		if b.single() && b.stands == owned && b.spec.Asked[b.cidr.Addr()] != "" && held && h.key != (model.AttachmentKey{}) {
			used = append(used, b)
		}
	}
	rt.mem.mu.Unlock()
	for _, b := range used {
		there, err := rt.affinity.refresh(ctx, p, b)
		if err != nil || !there {
			return err
		}
		o, spec, err := rt.registry.swap(ctx, b.object, b.spec, func(s *model.AddressBlock, _ string) {
			s.Asked = lacking(s.Asked, b.cidr.Addr())
		})
		if err != nil {
			return store.IgnoreConflict(err)
		}
		rt.mem.mu.Lock()
		b.learn(o, spec, rt.clock.now())
		rt.mem.mu.Unlock()
	}
	return nil
}

// toCede says which addresses of a block go to whom ("" is anybody), and which are refused; the caller holds the lock.
func (rt *returner) toCede(p *pool, b *block) (give map[netip.Addr]string, refuse []netip.Addr) {
	if b.stands != owned || b.object.Version == "" || b.cidr.IsSingleIP() && p.empty(b, rt.clock.now()) {
		return nil, nil // a block of one address goes back whole
	}
	give = map[netip.Addr]string{}
	now := rt.clock.now()
	for a, asks := range b.spec.Asked {
		node, claim, _ := strings.Cut(asks, claims.For)
		h, held := p.held[a]
		switch {
		case b.away[a] && b.spec.Ceded[a] != "":
			// The node that has it answers.
		case held && claim != "" && h == (holder{claim: claim}):
			give[a] = node + "/" // it goes where the claim is used; that it is the claim's is not forgotten here
		case held || p.reserved[a].Addr.IsValid() || b.away[a]:
			refuse = append(refuse, a)
		case p.free(b, a, now, false):
			give[a] = node + "/"
		}
	}
	if !p.tight() || rt.mem.hungry(p) {
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
