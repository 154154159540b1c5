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

// Programs returns the eBPF programs of the tap and of the link.
func (w Way) Programs() (tap, back redirect.Program, err error) {
	tap, err = redirect.FromGuest(w.Join, w.Link.Index, w.How == state.JoinPeer)
	if err != nil {
		return tap, back, err
	}
	back, err = redirect.ToLink(w.Tap.Index)
	return tap, back, err
}

// runs reports whether both links run the programs of the join, however they are attached.
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
		if slices.Equal(have, []tc.Filter{tc.ProgramFilter(want.Name)}) {
			continue
		}
		name, err := redirect.Attached(w.In.NS, index)
		if err != nil || name != want.Name {
			return false, err
		}
	}
	return true, nil
}

// beginPrograms attaches the programs to both links: as filters, or by tcx if the kernel lacks eBPF filters.
func (w Way) beginPrograms(ctx context.Context) error {
	tap, back, err := w.Programs()
	if err != nil {
		return err
	}
	var loaded []redirect.Loaded
	defer func() {
		for _, l := range loaded {
			_ = l.Close() // the link keeps its own reference
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
		batch = append(batch, tc.AddProgram(w.Join, on[i].Name, on[i].Index, l.FD(), l.Name)...)
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

// endPrograms detaches them, however they are attached.
func (w Way) endPrograms(ctx context.Context) error {
	errs := []error{w.endMirred(ctx)} // the priorities are the same
	for _, l := range []link.Found{w.Tap, w.Link} {
		if l.Index != 0 {
			errs = append(errs, redirect.Detach(w.In.NS, l.Index))
		}
	}
	return errors.Join(errs...)
}
