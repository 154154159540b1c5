// SPDX-License-Identifier: Apache-2.0

package join

import (
	"context"
	"slices"

	"github.com/weft-net/weft/internal/kernel/tc"
)

// mirrors reports whether the links have exactly the filters of the join.
func (w Way) mirrors(ctx context.Context) (bool, error) {
	onTap, onLink := tc.Joined(w.Join, w.Tap.Index, w.Link.Index)
	for index, want := range map[int][]tc.Filter{w.Tap.Index: onTap, w.Link.Index: onLink} {
		have, _, err := w.In.Reader.JoinFilters(ctx, index)
		slices.Sort(have)
		slices.Sort(want)
		if err != nil || !slices.Equal(have, want) {
			return false, err
		}
	}
	return true, nil
}

func (w Way) beginMirred(ctx context.Context) error {
	return w.In.Socket.Send(ctx, tc.Join(w.Join, w.Tap.Index, w.Link.Index))
}

func (w Way) endMirred(ctx context.Context) error {
	for name, index := range map[string]int{w.Join.Tap: w.Tap.Index, w.Join.Link: w.Link.Index} {
		if index == 0 {
			continue
		}
		ours, others, err := w.In.Reader.JoinFilters(ctx, index)
		if err != nil {
			return err
		}
		if len(ours) == 0 {
			continue
		}
		batch := tc.DeleteJoin(w.Join, index)
		if !others {
			batch = append(batch, tc.EndIngress(name, index))
		}
		if err := w.In.Socket.Send(ctx, batch); err != nil {
			return err
		}
	}
	return nil
}
