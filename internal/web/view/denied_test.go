// SPDX-License-Identifier: Apache-2.0

package view_test

import (
	"slices"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/node/nodestatus"
	"github.com/weft-net/weft/internal/web/view"
)

// Denied packets are those between two answers, also of an agent that was started again or was silent, and not those of
// before.
func TestDeniedRates(t *testing.T) {
	begin := time.Date(2026, 1, 2, 15, 0, 0, 0, time.UTC)
	var l view.DeniedLog
	at := func(seconds int) time.Time { return begin.Add(time.Duration(seconds) * time.Second) }
	add := func(seconds int, denied map[string]uint64) {
		var c nodestatus.Cluster
		for node, n := range denied {
			c.Statuses = append(c.Statuses, nodestatus.Status{Node: node, Denied: n})
		}
		l.Add(c, at(seconds))
	}
	add(0, map[string]uint64{"node1": 1000, "node2": 7})
	if r := l.Rates(at(1)); r.Flows != 0 || len(r.Lines) != 1 || len(r.Times) != 0 {
		t.Errorf("one answer: %+v", r)
	}
	add(1, map[string]uint64{"node1": 1004, "node2": 7}) // too early for a point
	add(4, map[string]uint64{"node1": 1010, "node2": 9})
	add(6, map[string]uint64{"node1": 3, "node3": 500}) // node1 was started again, node2 is silent, node3 is new
	add(10, map[string]uint64{"node1": 3, "node2": 17, "node3": 500})
	r := l.Rates(at(10))
	if want := []float64{3, 1.5, 2}; !slices.Equal(r.Lines[0].Rates, want) || r.Lines[0].Now != 2 || r.Lines[0].Peak != 3 {
		t.Errorf("%+v", r.Lines[0])
	}
	if r.Flows != 12+3+8 || !slices.Equal(r.Times, []int64{at(4).UnixMilli(), at(6).UnixMilli(), at(10).UnixMilli()}) || r.Since != begin.UnixMilli() {
		t.Errorf("%+v", r)
	}
	if r := l.Rates(at(2000)); r.Flows != 0 || len(r.Times) != 0 {
		t.Errorf("much later: %+v", r)
	}
	for i := range 3000 {
		add(3000+2*i, map[string]uint64{"node1": uint64(i)})
	}
	if r := l.Rates(at(3000 + 6000)); len(r.Times) != 450 {
		t.Errorf("%d points", len(r.Times))
	}
}
