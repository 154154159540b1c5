// SPDX-License-Identifier: Apache-2.0

package blocks

import (
	"context"
	"errors"
	"net/netip"
	"time"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/notify"
)

// obtainer gets an address for an attachment: from memory, else by more blocks, by addresses of other nodes' blocks, or from who
// has it and is to give it up.
type obtainer struct {
	cfg       *Config
	kick      notify.Chan
	clock     *clock
	mem       *memory
	namesakes *namesakes
	journal   *journalFile
	registry  *registry
	requests  *requests
	claims    *addressClaims
	affinity  *affinity
}

// take gives an address, out of memory where that is possible.
func (ob *obtainer) take(ctx context.Context, w want, h holder) (netip.Addr, error) {
	if a, ok, err := ob.fromMemory(ctx, w, h, false); ok || err != nil {
		return a, err
	}
	return ob.insist(ctx, w, h, ob.cfg.Patience)
}

// insist gives an address that this node has not got yet, or one that rests.
func (ob *obtainer) insist(ctx context.Context, w want, h holder, patience time.Duration) (netip.Addr, error) {
	a, err := ob.obtain(ctx, w, h, patience)
	if errors.Is(err, errSilent) {
		// Better an address that rests than none.
		if rested, ok, tooErr := ob.fromMemory(ctx, w, h, true); ok || tooErr != nil {
			return rested, tooErr
		}
		err = silent(w, err)
	}
	return a, err
}

func silent(w want, err error) error {
	return model.Faultf(model.CodeTryAgain, "", "%s: no address of this node's own blocks is free; %w", w.field, err)
}

// fromMemory gives an address of this node's blocks. Nobody is asked.
func (ob *obtainer) fromMemory(ctx context.Context, w want, h holder, tired bool) (netip.Addr, bool, error) {
	a, ok, dirty, err := ob.mem.choose(w, h, tired)
	if dirty {
		ob.affinity.flush(ctx, []netip.Addr{a})
	}
	return a, ok, err
}
