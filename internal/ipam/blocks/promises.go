// SPDX-License-Identifier: Apache-2.0

package blocks

import (
	"context"
	"encoding/json"
	"errors"
	"net/netip"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/ipam"
	"github.com/weft-net/weft/internal/model"
)

// keepBack has nobody here get an address that is about to be this node's, whatever becomes of that, but the claim whose it is.
func (e *Engine) keepBack(p *pool, a netip.Addr, claim string) error {
	e.mark(p, a, claim)
	return e.saveMarks()
}

// saveMarks writes the journal if it lacks something, such as a mark that was noted and not written: a write to the store that makes an
// address this node's may be the last thing that this engine does, and the next one must not give it to anybody else.
func (e *Engine) saveMarks() error {
	e.mu.Lock()
	unsaved := e.unsaved
	e.mu.Unlock()
	if !unsaved {
		return nil
	}
	return e.save()
}

// mark notes whose an address is, that was just seen to be promised: an earlier promise, of which this node has not heard yet that it
// is over, does not count. The journal does not have it yet.
func (e *Engine) mark(p *pool, a netip.Addr, claim string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	h := p.held[a]
	if h.claim == claim || h.claim != "" && h.key != (model.AttachmentKey{}) {
		return
	}
	h.claim = claim
	p.held[a] = h
	e.unsaved = true
}

// promises notes which addresses of a block, that is about to be this node's, belong to claims, in the journal, too: whoever
// knew it may be gone for good.
func (e *Engine) promises(ctx context.Context, p *pool, cidr netip.Prefix) error {
	for _, kind := range []store.Kind{store.AddressClaims(), store.IPAMClaims()} {
		all, err := Bounded(ctx, func(ctx context.Context) ([]store.Object, error) { return e.cfg.Objects.List(ctx, kind) })
		if errors.Is(err, store.ErrNotFound) {
			continue
		}
		if err != nil {
			return Unreachable("list of "+kind.Resource, err)
		}
		for _, o := range all {
			id := o.Key.Namespace + "/" + o.Key.Name
			if kind == store.AddressClaims() {
				id = ofAddressClaim + id
			}
			for _, a := range AddressesOf(o) {
				if cidr.Contains(a) {
					e.mark(p, a, id)
				}
			}
		}
	}
	return e.saveMarks()
}

// AddressesOf are the addresses that a claim has.
func AddressesOf(o store.Object) (out []netip.Addr) {
	texts, _ := claimTexts(o) // of a claim that is invalid, what can be read
	for _, text := range texts {
		if a, err := ipam.ParseAddr(text); err == nil {
			out = append(out, a)
		}
	}
	return out
}

// claimTexts are the addresses that an AddressClaim or an IPAMClaim has, as the object says them.
func claimTexts(o store.Object) ([]string, error) {
	if o.Key.Of(store.AddressClaims()) {
		c, err := o.AddressClaim()
		return c.Addresses, err
	}
	var c ipamClaim
	err := json.Unmarshal(o.Raw, &c)
	return c.Status.IPs, err
}
