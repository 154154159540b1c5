// SPDX-License-Identifier: Apache-2.0

// Package blockreport defines what a node reports about its blocks and addresses, for programs that run no engine.
package blockreport

import (
	"net/netip"

	"github.com/weft-net/weft/internal/model"
)

// OwnContainer is used as the container ID of the node's own addresses, such as its tunnel address.
const OwnContainer = "node"

// Counts are a node's numbers of blocks, and of free and allocated addresses in them.
type Counts struct{ Blocks, Free, Held int }

// Allocations lists what a node may allocate from, and what it has allocated.
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
