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

// Learnt are the elements that rules have added to a set; none where it is not there.
func (c *Conn) Learnt(ctx context.Context, family, tableName string, head state.Set) ([]state.Element, error) {
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
	err = settled(ctx, func() (bool, error) {
		var raw []rawElem
		b := c.wire.question(unix.NFT_MSG_GETSETELEM, n, "list elements of "+s.Name)
		b.String(unix.NFTA_SET_ELEM_LIST_TABLE, tableName)
		b.String(unix.NFTA_SET_ELEM_LIST_SET, s.Name)
		err := c.wire.dump(b, func(_ byte, body []byte) { raw = append(raw, decodeElements(body)...) })
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

// Unlearn takes elements out of such sets. Missing ones are no error.
func (c *Conn) Unlearn(ctx context.Context, family, tableName string, sets ...state.Set) error {
	return c.Remove(ctx, []state.Table{{Family: family, Name: tableName, Shared: true, Sets: sets}})
}
