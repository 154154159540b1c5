// SPDX-License-Identifier: Apache-2.0

package blocks

import (
	"net/netip"
	"slices"

	"github.com/weft-net/weft/internal/model"
)

// Allocations are what an engine may allocate, and has allocated.
type Allocations struct {
	Node   string         `json:"node"`
	Blocks []netip.Prefix `json:"blocks"` // of all pools, and single addresses that others lent
	Held   []HeldAddress  `json:"held"`
}

// HeldAddress is an address with its holder: an attachment, an IPAMClaim, or a claim by its attachment.
type HeldAddress struct {
	Pool string     `json:"pool"`
	Addr netip.Addr `json:"address"`
	model.AttachmentKey
	Claim string `json:"claim,omitempty"`
}

// Allocations are what the engine may allocate, and has allocated, now.
func (e *Engine) Allocations() Allocations {
	e.mu.Lock()
	defer e.mu.Unlock()
	g := Allocations{Node: e.cfg.Node, Blocks: []netip.Prefix{}, Held: []HeldAddress{}}
	for _, p := range e.pools {
		for _, b := range p.order {
			if b.stands == owned {
				g.Blocks = append(g.Blocks, b.cidr)
			}
		}
		for a, h := range p.held {
			g.Held = append(g.Held, HeldAddress{p.name, a, h.key, h.claim})
		}
	}
	slices.SortFunc(g.Blocks, func(a, b netip.Prefix) int { return a.Addr().Compare(b.Addr()) })
	slices.SortFunc(g.Held, func(a, b HeldAddress) int { return a.Addr.Compare(b.Addr) })
	return g
}
