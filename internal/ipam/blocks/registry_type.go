// SPDX-License-Identifier: Apache-2.0

package blocks

import (
	"encoding/hex"
	"fmt"
	"io"
	"sync"
	"time"
)

// registry is the store's objects of pools and blocks: how they are read and changed, and what of them is not this node's.
type registry struct {
	cfg       *Config
	clock     *clock
	mem       *memory
	namesakes *namesakes

	mu      sync.Mutex
	missing map[string]time.Time // nodes that have no object, since when
	// clean are the pools in which no other pool has blocks, each with the versions of all pools when that was seen.
	clean map[string]map[string]string
}

// number is a new number for a claim.
func (rg *registry) number() (string, error) {
	var b [8]byte
	if _, err := io.ReadFull(rg.cfg.Random, b[:]); err != nil {
		return "", fmt.Errorf("number for a claim: %w", err)
	}
	claim := hex.EncodeToString(b[:])
	rg.namesakes.sends(claim)
	return claim, nil
}
