// SPDX-License-Identifier: Apache-2.0

package redirect

import (
	"context"
	"errors"
	"slices"

	"github.com/weft-net/weft/internal/kernel/join"
	"github.com/weft-net/weft/internal/kernel/link"
	"github.com/weft-net/weft/internal/kernel/rtnl"
	"github.com/weft-net/weft/internal/kernel/tc"
	"github.com/weft-net/weft/internal/state"
)

// Joins joins links by programs. It implements join.Programs.
type Joins struct{}

// Of returns the programs of the tap and of the link of a join.
func (Joins) Of(w join.Way) (tap, back Program, err error) {
	tap, err = FromGuest(w.Join, w.Link.Index, w.How == state.JoinPeer)
	if err != nil {
		return tap, back, err
	}
	back, err = ToLink(w.Tap.Index)
	return tap, back, err
}

// Run reports whether both links run the programs of the join, however they are attached.
func (p Joins) Run(ctx context.Context, w join.Way) (bool, error) {
	tap, back, err := p.Of(w)
	if err != nil {
		return false, err
	}
	for index, want := range map[int]Program{w.Tap.Index: tap, w.Link.Index: back} {
		have, _, err := w.In.Reader.JoinFilters(ctx, index)
		if err != nil {
			return false, err
		}
		if slices.Equal(have, []tc.Filter{tc.ProgramFilter(want.Name)}) {
			continue
		}
		name, err := Attached(w.In.NS, index)
		if err != nil || name != want.Name {
			return false, err
		}
	}
	return true, nil
}

// Begin attaches the programs to both links: as filters, or by tcx if the kernel lacks eBPF filters.
func (p Joins) Begin(ctx context.Context, w join.Way) error {
	tap, back, err := p.Of(w)
	if err != nil {
		return err
	}
	var loaded []Loaded
	defer func() {
		for _, l := range loaded {
			_ = l.Close() // the link keeps its own reference
		}
	}()
	for _, program := range []Program{back, tap} {
		l, err := Load(program)
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
	if err := w.EndPrograms(ctx); err != nil {
		return err
	}
	for i, l := range loaded {
		if err := Attach(w.In.NS, on[i].Index, l); err != nil {
			return err
		}
	}
	return nil
}

// End detaches them from tcx; join.Way removes filters.
func (Joins) End(_ context.Context, w join.Way) error {
	var errs []error
	for _, l := range []link.Found{w.Tap, w.Link} {
		if l.Index != 0 {
			errs = append(errs, Detach(w.In.NS, l.Index))
		}
	}
	return errors.Join(errs...)
}
