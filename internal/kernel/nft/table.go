// SPDX-License-Identifier: Apache-2.0

package nft

import (
	"github.com/weft-net/weft/internal/kernel/nft/lang"
	"github.com/weft-net/weft/internal/state"
)

// table is a table with the driver's own state, compiled or read.
type table struct {
	lang.Table
	// full has the exclusive sets that are known to have elements, or not; nil when they were not read.
	full map[string]bool
}

func newTable(family byte, name string, shared bool) *table {
	return &table{Table: lang.Table{Family: family, Name: name, Shared: shared}}
}

// compile compiles tables; values that name the same table are joined into one.
func compile(in []state.Table) ([]*table, error) {
	compiled, err := lang.Compile(in)
	out := make([]*table, len(compiled))
	for i, t := range compiled {
		out[i] = &table{Table: *t}
	}
	return out, err
}
