// SPDX-License-Identifier: Apache-2.0

package blocks

import (
	"context"
	"errors"
	"net/netip"
	"strings"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/ipam/addrspan"
	"github.com/weft-net/weft/internal/ipam/claims"
	"github.com/weft-net/weft/internal/model"
)

// answerRequests lends other nodes the addresses that they request, or refuses; where the pool is exhausted on another
// node, it lends all that is free.
func (rt *releaser) answerRequests(ctx context.Context, p *pool) error {
	for _, b := range rt.state.ownBlocks(p) {
		rt.state.mu.Lock()
		grant, refuse := rt.toLendLocked(p, b)
		for a := range grant {
			b.lent[a] = true // from here on it is not allocated on this node
		}
		rt.state.mu.Unlock()
		if len(grant)+len(refuse) == 0 {
			continue
		}
		if err := rt.journal.save(); err != nil {
			return err
		}
		o, spec, err := rt.registry.updateBlock(ctx, b.object, b.spec, func(s *model.AddressBlock, _ string) {
			for a, to := range grant {
				s.Lent, s.Requested = withEntry(s.Lent, a, to), withoutEntry(s.Requested, a)
			}
			for _, a := range refuse {
				s.Requested = withoutEntry(s.Requested, a)
			}
		})
		if errors.Is(err, store.ErrConflict) || errors.Is(err, store.ErrNotFound) {
			// The write failed for certain: there was only this one, and it was answered.
			rt.state.mu.Lock()
			for a := range grant {
				delete(b.lent, a)
			}
			rt.state.mu.Unlock()
			_, err = rt.affinity.refresh(ctx, p, b)
			rt.kick.Notify()
		} else if err == nil {
			rt.state.setLent(b, o, spec)
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

// refuseRequests refuses requests for borrowed addresses that are in use.
func (rt *releaser) refuseRequests(ctx context.Context, p *pool) error {
	rt.state.mu.Lock()
	var used []*block
	for _, b := range p.order {
		h, held := p.held[b.cidr.Addr()]
		if b.borrowed() && b.state == owned && b.spec.Requested[b.cidr.Addr()] != "" && held &&
			h.key != (model.AttachmentKey{}) {
			used = append(used, b)
		}
	}
	rt.state.mu.Unlock()
	for _, b := range used {
		there, err := rt.affinity.refresh(ctx, p, b)
		if err != nil || !there {
			return err
		}
		o, spec, err := rt.registry.updateBlock(ctx, b.object, b.spec, func(s *model.AddressBlock, _ string) {
			s.Requested = withoutEntry(s.Requested, b.cidr.Addr())
		})
		if err != nil {
			return store.IgnoreConflict(err)
		}
		rt.state.mu.Lock()
		b.updateLocked(o, spec, rt.clock.now())
		rt.state.mu.Unlock()
	}
	return nil
}

// toLendLocked returns which addresses of a block to lend to which node ("" is any node), and which requests to refuse.
func (rt *releaser) toLendLocked(p *pool, b *block) (grant map[netip.Addr]string, refuse []netip.Addr) {
	if b.state != owned || b.object.Version == "" || b.cidr.IsSingleIP() && p.empty(b, rt.clock.now()) {
		return nil, nil // a block of one address is released whole
	}
	grant = map[netip.Addr]string{}
	now := rt.clock.now()
	for a, reqs := range b.spec.Requested {
		node, claim, _ := strings.Cut(reqs, claims.EntrySeparator)
		h, held := p.held[a]
		switch {
		case b.lent[a] && b.spec.Lent[a] != "":
			// The node that borrowed it answers.
		case held && claim != "" && h == (holder{claim: claim}):
			grant[a] = node + "/" // it moves to where the claim is used, and stays marked as the claim's here
		case held || p.reserved[a].Addr.IsValid() || b.lent[a]:
			refuse = append(refuse, a)
		case p.free(b, a, now, false):
			grant[a] = node + "/"
		}
	}
	if !p.exhausted() || rt.state.needsAddresses(p) {
		return grant, refuse
	}
	addrspan.Each(b.cidr, func(a netip.Addr) bool {
		if _, is := grant[a]; !is && p.free(b, a, now, false) && now.Sub(b.touched) >= urgentIdle {
			grant[a] = ""
		}
		return true
	})
	return grant, refuse
}
