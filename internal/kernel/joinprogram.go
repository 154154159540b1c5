// SPDX-License-Identifier: Apache-2.0

package kernel

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

// programs are those of the ways that are eBPF's: of the tap, and of the link.
func (w way) programs() (tap, back redirect.Program, err error) {
	tap, err = redirect.Guest(w.join, w.link.Index, w.how == state.JoinPeer)
	if err != nil {
		return tap, back, err
	}
	back, err = redirect.All(w.tap.Index)
	return tap, back, err
}

// runs tells whether both links run the programs that are wanted, wherever these are attached.
func (w way) runs(ctx context.Context) (bool, error) {
	tap, back, err := w.programs()
	if err != nil {
		return false, err
	}
	for index, want := range map[int]redirect.Program{w.tap.Index: tap, w.link.Index: back} {
		have, _, err := w.conn.reader.JoinFilters(ctx, index)
		if err != nil {
			return false, err
		}
		if slices.Equal(have, []tc.Filter{tc.Running(want.Name)}) {
			continue
		}
		name, err := redirect.Attached(w.conn.ns, index)
		if err != nil || name != want.Name {
			return false, err
		}
	}
	return true, nil
}

// beginPrograms has both links run theirs: as filters, which takes a moment, or by tcx where the kernel has no such filters.
func (w way) beginPrograms(ctx context.Context) error {
	tap, back, err := w.programs()
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
	on := []link.Found{w.link, w.tap}
	for i, l := range loaded {
		batch = append(batch, tc.Run(w.join, on[i].Name, on[i].Index, l.FD(), l.Name)...)
	}
	if err := w.conn.rtnl.Send(ctx, batch); err == nil {
		return nil
	}
	if err := w.endPrograms(ctx); err != nil {
		return err
	}
	for i, l := range loaded {
		if err := redirect.Attach(w.conn.ns, on[i].Index, l); err != nil {
			return err
		}
	}
	return nil
}

// endPrograms takes them away, wherever they are attached.
func (w way) endPrograms(ctx context.Context) error {
	errs := []error{w.endMirred(ctx)} // filters are filters
	for _, l := range []link.Found{w.tap, w.link} {
		if l.Index != 0 {
			errs = append(errs, redirect.Detach(w.conn.ns, l.Index))
		}
	}
	return errors.Join(errs...)
}
