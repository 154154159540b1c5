// SPDX-License-Identifier: Apache-2.0

package observer

import (
	"testing"
	"time"

	"github.com/weft-net/weft/internal/flow"
)

// The ring has the last lines in their order, and knows since when it has all.
func TestRing(t *testing.T) {
	var r ring
	at := func(i int) time.Time { return time.Unix(int64(i), 0) }
	const added = ringSize + 10
	for i := range added {
		if r.add(flow.Line{Flow: &flow.Record{Time: at(i)}}); i == ringSize-1 {
			if all, from := r.since(at(0)); len(all) != ringSize || !from.IsZero() {
				t.Errorf("full: %d lines since %s", len(all), from)
			}
		}
	}
	all, from := r.since(at(0))
	if len(all) != ringSize || !from.Equal(at(9)) || !all[0].Flow.Time.Equal(at(10)) ||
		!all[ringSize-1].Flow.Time.Equal(at(added-1)) {
		t.Errorf("%d lines since %s", len(all), from)
	}
	if all, from := r.since(at(added - 3)); len(all) != 3 || !from.IsZero() {
		t.Errorf("the last: %d lines since %s", len(all), from)
	}
}
