// SPDX-License-Identifier: Apache-2.0

package join

import (
	"context"
	"errors"
	"slices"

	"github.com/weft-net/weft/internal/kernel/link"
	"github.com/weft-net/weft/internal/kernel/redirect"
	"github.com/weft-net/weft/internal/kernel/rtnl"
	"github.com/weft-net/weft/internal/kernel/tc"
	"github.com/weft-net/weft/internal/state"
)

// Programs are those of the ways that are eBPF's: of the tap, and of the link.
func (w Way) Programs() (tap, back redirect.Program, err error) {
	tap, err = redirect.Guest(w.Join, w.Link.Index, w.How == state.JoinPeer)
	if err != nil {
		return tap, back, err
	}
	back, err = redirect.All(w.Tap.Index)
	return tap, back, err
}

// runs tells whether both links run the programs that are wanted, wherever these are attached.
func (w Way) runs(ctx context.Context) (bool, error) {
	tap, back, err := w.Programs()
	if err != nil {
		return false, err
	}
	for index, want := range map[int]redirect.Program{w.Tap.Index: tap, w.Link.Index: back} {
		have, _, err := w.In.Reader.JoinFilters(ctx, index)
		if err != nil {
			return false, err
		}
		if slices.Equal(have, []tc.Filter{tc.Running(want.Name)}) {
			continue
		}
		name, err := redirect.Attached(w.In.NS, index)
		if err != nil || name != want.Name {
			return false, err
		}
	}
	return true, nil
}

// beginPrograms has both links run theirs: as filters, which takes a moment, or by tcx where the kernel has no such
// filters.
func (w Way) beginPrograms(ctx context.Context) error {
	tap, back, err := w.Programs()
	if err != nil {
		return err
	}
	var loaded []redirect.Loaded
	defer func() {
		for _, l := range loaded {
			_ = l.Close() // its link has it
		}
	}()
	for _, p := range []redirect.Program{back, tap} {
		l, err := redirect.Load(p)
		if err != nil {
			return err
		}
		loaded = append(loaded, l)
	}
	var batch []*rtnl.Message
	on := []link.Found{w.Link, w.Tap}
	for i, l := range loaded {
		batch = append(batch, tc.Run(w.Join, on[i].Name, on[i].Index, l.FD(), l.Name)...)
	}
	if err := w.In.Socket.Send(ctx, batch); err == nil {
		return nil
	}
	if err := w.endPrograms(ctx); err != nil {
		return err
	}
	for i, l := range loaded {
		if err := redirect.Attach(w.In.NS, on[i].Index, l); err != nil {
			return err
		}
	}
	return nil
}

// endPrograms takes them away, wherever they are attached.
func (w Way) endPrograms(ctx context.Context) error {
	errs := []error{w.endMirred(ctx)} // filters are filters
	for _, l := range []link.Found{w.Tap, w.Link} {
		if l.Index != 0 {
			errs = append(errs, redirect.Detach(w.In.NS, l.Index))
		}
	}
	return errors.Join(errs...)
}
