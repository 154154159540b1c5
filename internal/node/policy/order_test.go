// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"slices"
	"testing"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/plan/policy"
)

// An interface that is judged elsewhere from now on is judged all the time: the node's tables stand before those in
// pods go, they go before those that come.
func TestOrdered(t *testing.T) {
	pod := func(name string) policy.Place { return policy.Place{Pod: model.PodRef{Namespace: "shop", Name: name}} }
	in := []policy.Change{
		{Place: pod("a"), Made: true},
		{Place: pod("b"), Gone: true},
		{Place: pod("c")},
		{Place: policy.Place{Ports: true}, Made: true},
		{Place: policy.Place{}},
		{Place: pod("d"), Gone: true},
	}
	want := []int{3, 4, 1, 5, 0, 2}
	for i, c := range ordered(in) {
		if is := in[want[i]]; c.Place != is.Place || c.Gone != is.Gone || c.Made != is.Made {
			t.Errorf("as number %d %+v is written, and should be %+v", i, c, is)
		}
	}
	away := []policy.Change{
		{Place: policy.Place{}, Gone: true}, {Place: pod("a"), Made: true}, {Place: pod("b"), Gone: true},
	}
	got := ordered(slices.Clone(away))
	if got[0].Place != (policy.Place{}) || got[1].Place != pod("b") || got[2].Place != pod("a") {
		t.Errorf("what goes does not go before what comes: %+v", got)
	}
}
