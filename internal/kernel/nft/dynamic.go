// SPDX-License-Identifier: Apache-2.0

package nft

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/kernel/nft/lang"
	"github.com/weft-net/weft/internal/state"
)

// DynamicElements returns the elements that rules have added to a set; none when the set is missing.
func (c *Conn) DynamicElements(ctx context.Context, family, tableName string, head state.Set) ([]state.Element, error) {
	n, err := lang.ParseFamily(family)
	if err != nil {
		return nil, fmt.Errorf("table %s: %w", tableName, err)
	}
	s, err := lang.CompileSet(head)
	if err != nil {
		return nil, fmt.Errorf("set %s: %w", head.Name, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []state.Element
	err = retryStale(ctx, func() (bool, error) {
		var raw []rawElem
		b := c.wire.question(unix.NFT_MSG_GETSETELEM, n, "list elements of "+s.Name)
		b.String(unix.NFTA_SET_ELEM_LIST_TABLE, tableName)
		b.String(unix.NFTA_SET_ELEM_LIST_SET, s.Name)
		err := c.wire.dump(b, func(_ byte, body []byte) { raw = appendElements(raw, body) })
		out = nil
		for _, e := range joinRanges(s, raw) {
			out = append(out, s.State(e))
		}
		return false, err
	})
	if errors.Is(err, unix.ENOENT) {
		return nil, nil
	}
	return out, err
}

// DeleteDynamic deletes elements of such sets. Missing ones are no error.
func (c *Conn) DeleteDynamic(ctx context.Context, family, tableName string, sets ...state.Set) error {
	return c.Remove(ctx, []state.Table{{Family: family, Name: tableName, Shared: true, Sets: sets}})
}
