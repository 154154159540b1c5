// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"slices"
	"testing"

	"github.com/weft-net/weft/internal/nettest"
	"github.com/weft-net/weft/internal/state"
)

// TestWhole finds whose rules are not all there, among many.
func TestWhole(t *testing.T) {
	ns, c := space(t)
	ctx := bounded(t)
	values := [][]state.IPTables{
		{pod("2", false), pod("2", true)}, {pod("3", false)}, {pod("4", false)}, nil,
	}
	for _, v := range values {
		if err := c.Apply(ctx, v); err != nil {
			t.Fatal(err)
		}
	}
	for vandal, want := range map[string][]bool{
		"":                               {true, true, true, true},
		"ip6tables -t nat -F CNI-2":      {false, true, true, true},
		"iptables -t nat -F CNI-3":       {true, false, true, true},
		"iptables -t nat -F POSTROUTING": {false, false, false, true},
	} {
		if vandal != "" {
			nettest.Run(t, ns, "sh", "-c", vandal)
		}
		if have, err := c.Whole(ctx, values); err != nil || !slices.Equal(have, want) {
			t.Errorf("after %q: %v, %v; want %v", vandal, have, err, want)
		}
		for _, v := range values {
			if err := c.Apply(ctx, v); err != nil {
				t.Fatal(err)
			}
		}
	}
}
