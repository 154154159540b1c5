// SPDX-License-Identifier: Apache-2.0

package blocks

import (
	"net/netip"

	"github.com/weft-net/weft/internal/model"
)

// Allocations lists what an engine may allocate from, and what it has allocated.
type Allocations struct {
	Node   string         `json:"node"`
	Blocks []netip.Prefix `json:"blocks"` // of all pools, and borrowed addresses
	Held   []HeldAddress  `json:"held"`
}

// HeldAddress is an address with its holder: an attachment, an IPAMClaim, or a claim by its attachment.
type HeldAddress struct {
	Pool string     `json:"pool"`
	Addr netip.Addr `json:"address"`
	model.AttachmentKey
	Claim string `json:"claim,omitempty"`
}
