// SPDX-License-Identifier: Apache-2.0

package nft

import (
	"context"

	"github.com/weft-net/weft/internal/kernel/nft/lang"
	"github.com/weft-net/weft/internal/state"
)

// Diff returns the differences between tables and those that exist, as lang.Diff does with what Read returns. Of a set it
// keeps only the elements that differ, before it reads the next one: the texts of all elements of a large cluster need more
// memory than its plan.
func (c *Conn) Diff(ctx context.Context, want []state.Table) ([]state.Difference, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if have, done, err := c.readUnchanged(want); err != nil {
		return nil, err
	} else if done {
		return lang.Diff(want, have), nil
	}
	want = lang.JoinTables(want)
	var have, rest []state.Table
	err := retryStale(ctx, func() (bool, error) {
		have, rest = nil, nil
		ws, err := compile(want)
		if err != nil {
			return false, err
		}
		for i, w := range ws {
			h, err := c.reader.readTable(w, func(s *lang.Set, named lang.Set) { dropEqual(w, s, named) })
			if err != nil {
				return false, err
			}
			left := want[i]
			if h != nil {
				if w.Shared {
					h.narrow(w)
				}
				have = append(have, h.State())
				left.Sets = w.State().Sets
			}
			rest = append(rest, left)
		}
		return false, nil
	})
	if err != nil {
		return nil, err
	}
	return lang.Diff(rest, have), nil
}

// dropEqual removes the elements that a set of a table has in both.
func dropEqual(want *table, have *lang.Set, named lang.Set) {
	if !named.SameHead(*have) {
		return
	}
	for i := range want.Sets {
		if want.Sets[i].Name == named.Name {
			lang.DropEqual(&want.Sets[i], have)
		}
	}
}
