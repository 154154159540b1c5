// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"slices"
	"testing"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/plan/policy"
)

// TestOrdered: an interface that is filtered in another place from now on is always filtered: the node's tables are
// written before those in pods are deleted, which are deleted before new ones are written.
func TestOrdered(t *testing.T) {
	pod := func(name string) policy.EnforcementPoint {
		return policy.EnforcementPoint{Pod: model.PodRef{Namespace: "shop", Name: name}}
	}
	in := []policy.Change{
		{Point: pod("a"), Made: true},
		{Point: pod("b"), Gone: true},
		{Point: pod("c")},
		{Point: policy.EnforcementPoint{Ports: true}, Made: true},
		{Point: policy.EnforcementPoint{}},
		{Point: pod("d"), Gone: true},
	}
	want := []int{3, 4, 1, 5, 0, 2}
	for i, c := range ordered(in) {
		if is := in[want[i]]; c.Point != is.Point || c.Gone != is.Gone || c.Made != is.Made {
			t.Errorf("as number %d %+v is written, and should be %+v", i, c, is)
		}
	}
	away := []policy.Change{
		{Point: policy.EnforcementPoint{}, Gone: true}, {Point: pod("a"), Made: true}, {Point: pod("b"), Gone: true},
	}
	got := ordered(slices.Clone(away))
	if got[0].Point != (policy.EnforcementPoint{}) || got[1].Point != pod("b") || got[2].Point != pod("a") {
		t.Errorf("what goes does not go before what comes: %+v", got)
	}
}
