// SPDX-License-Identifier: Apache-2.0

package blocks

import (
	"context"
	"maps"
	"net/netip"

	"github.com/weft-net/weft/internal/ipam"
	"github.com/weft-net/weft/internal/model"
)

// Restore tells the engine which addresses recorded attachments have: before it is asked for any.
func (e *Engine) Restore(ctx context.Context, asks []ipam.Ask) {
	var held []Held
	for _, ask := range asks {
		s, err := e.settings(ipam.Ask{Conf: ask.Conf})
		for _, a := range ask.Held {
			name := s.pool
			for _, w := range s.wants {
				if w.network.Contains(a) {
					name = w.pool
				}
			}
			if err == nil && name != "" {
				held = append(held, Held{name, a, ask.Key()})
				continue
			}
			held = append(held, e.home(a, ask.Key())...)
		}
	}
	e.restore(held)
	e.rinseAll(ctx)
}

// home finds the pools that an address may be of: those that have a block of it here, else all of the cluster's network, because
// people may have pools overlap, and move addresses from one to another. One that holds what is another's gives it to nobody, and rests
// it when it is freed. Where no block is known, or no pool, it is not given whatever pool is met.
func (e *Engine) home(a netip.Addr, key model.AttachmentKey) []Held {
	e.mu.Lock()
	defer e.mu.Unlock()
	var having, could, all []Held
	for name, p := range e.pools {
		h := Held{name, a, key}
		all = append(all, h)
		if !p.spec.OfCluster() {
			continue
		}
		could = append(could, h)
		if p.blockOf(a) != nil {
			having = append(having, h)
		}
	}
	if len(having) > 0 {
		return having
	}
	e.homeless[a] = holder{key: key}
	if len(could) > 0 {
		return could
	}
	return all
}

// settle forgets that attachments have addresses of unknown pools.
func (e *Engine) settle(gone func(holder) bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	maps.DeleteFunc(e.homeless, func(_ netip.Addr, h holder) bool { return gone(h) })
}

func (e *Engine) restore(held []Held) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, h := range held {
		was := e.pool(h.Pool).held[h.Addr]
		e.pool(h.Pool).held[h.Addr] = holder{h.Key, was.claim}
	}
}
