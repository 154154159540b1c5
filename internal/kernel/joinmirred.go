// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"context"
	"slices"

	"github.com/weft-net/weft/internal/kernel/tc"
)

// mirrors tells whether the join is done by exactly the filters that are wanted.
func (w way) mirrors(ctx context.Context) (bool, error) {
	onTap, onLink := tc.Joined(w.join, w.tap.Index, w.link.Index)
	for index, want := range map[int][]tc.Filter{w.tap.Index: onTap, w.link.Index: onLink} {
		have, _, err := w.conn.reader.JoinFilters(ctx, index)
		slices.Sort(have)
		slices.Sort(want)
		if err != nil || !slices.Equal(have, want) {
			return false, err
		}
	}
	return true, nil
}

func (w way) beginMirred(ctx context.Context) error {
	return w.conn.rtnl.Send(ctx, tc.Join(w.join, w.tap.Index, w.link.Index))
}

func (w way) endMirred(ctx context.Context) error {
	for name, index := range map[string]int{w.join.Tap: w.tap.Index, w.join.Link: w.link.Index} {
		if index == 0 {
			continue
		}
		ours, others, err := w.conn.reader.JoinFilters(ctx, index)
		if err != nil {
			return err
		}
		if len(ours) == 0 {
			continue
		}
		batch := tc.Part(w.join, index)
		if !others {
			batch = append(batch, tc.EndIngress(name, index))
		}
		if err := w.conn.rtnl.Send(ctx, batch); err != nil {
			return err
		}
	}
	return nil
}
