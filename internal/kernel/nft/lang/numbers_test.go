// SPDX-License-Identifier: Apache-2.0

package lang

import (
	"math"
	"testing"

	"github.com/weft-net/weft/internal/state"
)

// TestNumbersThatDoNotFit: numbers that are too large for the kernel are refused, never truncated.
func TestNumbersThatDoNotFit(t *testing.T) {
	chain := func(priority int) state.Table {
		return state.Table{Family: "inet", Name: "t", Chains: []state.Chain{{
			Name: "c", Type: "filter", Hook: "input", Priority: priority,
		}}}
	}
	set := func(size int) state.Table {
		return state.Table{Family: "inet", Name: "t", Sets: []state.Set{{Name: "s", Key: "ipv4_addr", DynamicSize: size}}}
	}
	for name, c := range map[string]struct {
		table state.Table
		fits  bool
	}{
		"the last priority":         {chain(math.MaxInt32), true},
		"a priority behind it":      {chain(math.MaxInt32 + 1), false},
		"the first priority":        {chain(math.MinInt32), true},
		"a priority before it":      {chain(math.MinInt32 - 1), false},
		"as many as a set can have": {set(math.MaxUint32), true},
		"one more":                  {set(math.MaxUint32 + 1), false},
	} {
		if _, err := CompileTable(c.table); (err == nil) != c.fits {
			t.Errorf("%s: %v", name, err)
		}
	}
}
