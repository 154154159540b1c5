// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"slices"
	"testing"

	"github.com/weft-net/weft/internal/nettest"
	"github.com/weft-net/weft/internal/state"
)

// TestComplete finds the owners with missing rules, among many.
func TestComplete(t *testing.T) {
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
	for externalChange, want := range map[string][]bool{
		"":                               {true, true, true, true},
		"ip6tables -t nat -F CNI-2":      {false, true, true, true},
		"iptables -t nat -F CNI-3":       {true, false, true, true},
		"iptables -t nat -F POSTROUTING": {false, false, false, true},
	} {
		if externalChange != "" {
			nettest.Run(t, ns, "sh", "-c", externalChange)
		}
		if have, err := c.Complete(ctx, values); err != nil || !slices.Equal(have, want) {
			t.Errorf("after %q: %v, %v; want %v", externalChange, have, err, want)
		}
		for _, v := range values {
			if err := c.Apply(ctx, v); err != nil {
				t.Fatal(err)
			}
		}
	}
}
