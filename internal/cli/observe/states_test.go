// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"testing"

	"github.com/weft-net/weft/internal/flow"
	"github.com/weft-net/weft/internal/node/observer"
)

// Changes of TCP's states cost the kernel messages: they are asked for by filters that can select them, and live.
func TestAsksForStates(t *testing.T) {
	state := flow.Condition{Field: flow.FieldTCPState, Values: []string{"established"}}
	update := flow.Condition{Field: flow.FieldKind, Values: []string{"new", "update"}}
	notUpdate := update
	notUpdate.Not = true
	for _, c := range []struct {
		follow bool
		filter []flow.Condition
		want   bool
	}{
		{true, nil, false},
		{true, []flow.Condition{{Field: flow.FieldPort, Values: []string{"80"}}}, false},
		{true, []flow.Condition{state}, true},
		{false, []flow.Condition{state}, false},
		{true, []flow.Condition{update}, true},
		{true, []flow.Condition{notUpdate}, false},
	} {
		if got := (question{follow: c.follow, filter: c.filter}).values().Get(observer.ParameterStates) == "true"; got != c.want {
			t.Errorf("follow %t, %+v: %t", c.follow, c.filter, got)
		}
	}
}
