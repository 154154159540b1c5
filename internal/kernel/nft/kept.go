// SPDX-License-Identifier: Apache-2.0

package nft

import (
	"github.com/weft-net/weft/internal/kernel/nft/lang"
	"github.com/weft-net/weft/internal/state"
)

// table is a table as the driver keeps it: as it was compiled, or read.
type table struct {
	lang.Table
	// full are the sets with Exclusive that are known to hold elements, or not; nil when nobody has looked.
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
