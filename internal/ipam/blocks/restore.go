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

// home finds the pools that an address may be of. Where none is known yet, it is not given whatever pool is met.
func (e *Engine) home(a netip.Addr, key model.AttachmentKey) []Held {
	e.mu.Lock()
	defer e.mu.Unlock()
	for name, p := range e.pools {
		if _, of := p.region(a); of && p.spec.OfCluster() {
			return []Held{{name, a, key}}
		}
	}
	e.homeless[a] = holder{key: key}
	var held []Held
	for name := range e.pools {
		held = append(held, Held{name, a, key})
	}
	return held
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
