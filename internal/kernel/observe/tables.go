// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"context"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/state"
)

// answerTables returns the rules, and which routing tables are in use: by a rule, by a route of either family, by a
// VRF.
func (c *Namespace) answerTables(ctx context.Context) (state.Answer, error) {
	a := state.Answer{Found: true}
	rules, err := c.Reader.Rules(ctx)
	if err != nil {
		return a, err
	}
	for _, r := range rules {
		a.Rules = append(a.Rules, r.Rule)
		a.Tables = append(a.Tables, r.Table)
	}
	for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
		routes, err := c.Reader.Routes(ctx, family, 0, 0)
		if err != nil {
			return a, err
		}
		for _, r := range routes {
			a.Tables = append(a.Tables, r.Table)
		}
	}
	links, err := c.Reader.Links(ctx, 0)
	if err != nil {
		return a, err
	}
	for _, l := range links {
		if l.VRF != nil {
			a.Tables = append(a.Tables, l.VRF.Table)
		}
	}
	slices.Sort(a.Tables)
	a.Tables = slices.Compact(a.Tables)
	return a, nil
}
