// SPDX-License-Identifier: Apache-2.0

package blocks

import (
	"context"
	"net/netip"
	"strings"

	"github.com/weft-net/weft/internal/model"
)

// leave makes sure, before an address of a claim is given to somebody else, that nobody who has read the claim before
// takes it still. False: not now.
func (rt *returner) leave(ctx context.Context, p *pool, a netip.Addr) (bool, error) {
	rt.mem.mu.Lock()
	b := p.blockOf(a)
	ok := b != nil && b.cidr.Contains(a) && b.stands == owned && !b.away[a]
	rt.mem.mu.Unlock()
	if !ok {
		return true, nil // it is not this node's to give
	}
	there, err := rt.affinity.refresh(ctx, p, b)
	if err != nil || !there {
		return err == nil, err
	}
	rt.mem.mu.Lock()
	away := b.away[a]
	rt.mem.mu.Unlock()
	if away {
		return true, nil
	}
	was := b.claim
	if b.single() {
		_, err = rt.affinity.grab(ctx, p, a, "", b.object, b.spec)
	} else {
		err = rt.affinity.renew(ctx, p, b)
	}
	rt.mem.mu.Lock()
	defer rt.mem.mu.Unlock()
	now := p.blockOf(a)
	return err == nil && now != nil && now.claim != was, err
}

// movedOn tells whether an address that was ceded to this node has gone on to another one with the machine whose it is.
func (p *pool) movedOn(b *block, spec model.AddressBlock, node string) bool {
	a := b.cidr.Addr()
	return b.single() && p.held[a].claim != "" && !strings.HasPrefix(spec.Ceded[a], node+"/")
}
