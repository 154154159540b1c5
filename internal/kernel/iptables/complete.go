// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"context"

	"github.com/weft-net/weft/internal/state"
)

// tableKey identifies a table.
type tableKey struct {
	v6, legacy, nft bool
	name            string
}

// Complete reports for each of many owners' values whether Apply would do nothing. Each table is read once for all of
// them.
func (c *Conn) Complete(ctx context.Context, values [][]state.IPTables) ([]bool, error) {
	read := map[tableKey]*Table{}
	out := make([]bool, len(values))
	for i, tables := range values {
		groups, err := group(tables)
		if err != nil {
			return nil, err
		}
		out[i] = true
		for _, w := range groups {
			key := tableKey{w.IPv6, w.Legacy, w.NFT, w.Table}
			if read[key] == nil {
				if read[key], err = c.Save(ctx, w.IPTables); err != nil {
					return nil, err
				}
			}
			s, err := c.missing(ctx, w, read[key])
			if err != nil {
				return nil, err
			}
			out[i] = out[i] && s.empty()
		}
	}
	return out, nil
}
