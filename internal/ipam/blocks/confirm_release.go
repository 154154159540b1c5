// SPDX-License-Identifier: Apache-2.0

package blocks

import (
	"context"
	"net/netip"
	"strings"

	"github.com/weft-net/weft/internal/model"
)

// confirmRelease invalidates transfers that other nodes may have started while the claim still named the address,
// before the address is allocated again. False: not possible now.
func (rt *releaser) confirmRelease(ctx context.Context, p *pool, a netip.Addr) (bool, error) {
	rt.state.mu.Lock()
	b := p.blockOf(a)
	ok := b != nil && b.cidr.Contains(a) && b.state == owned && !b.lent[a]
	rt.state.mu.Unlock()
	if !ok {
		return true, nil // another node decides about it
	}
	there, err := rt.affinity.refresh(ctx, p, b)
	if err != nil || !there {
		return err == nil, err
	}
	rt.state.mu.Lock()
	away := b.lent[a]
	rt.state.mu.Unlock()
	if away {
		return true, nil
	}
	was := b.claim
	if b.borrowed() {
		_, err = rt.affinity.claimBorrowed(ctx, p, a, "", b.object, b.spec)
	} else {
		err = rt.affinity.renew(ctx, p, b)
	}
	rt.state.mu.Lock()
	defer rt.state.mu.Unlock()
	now := p.blockOf(a)
	return err == nil && now != nil && now.claim != was, err
}

// transferred reports whether a borrowed address has moved to another node with the VM that owns it.
func (p *pool) transferred(b *block, spec model.AddressBlock, node string) bool {
	a := b.cidr.Addr()
	return b.borrowed() && p.held[a].claim != "" && !strings.HasPrefix(spec.Lent[a], node+"/")
}
