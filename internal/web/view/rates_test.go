// SPDX-License-Identifier: Apache-2.0

package view_test

import (
	"slices"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/flow"
	"github.com/weft-net/weft/internal/web/view"
)

// Rates count each connection once, by verdict, in steps that are over, since the observation began and for five minutes.
func TestRates(t *testing.T) {
	begin := time.Date(2026, 1, 2, 15, 0, 0, 0, time.UTC)
	l := view.NewFlowLog(begin)
	web, db := end("shop/web", "node1", 40000), end("shop/db", "node2", 5432)
	add := func(seconds int, node, direction string, kind flow.Kind, verdict flow.Verdict) {
		l.Add(flow.Record{
			Time: begin.Add(time.Duration(seconds) * time.Second), Node: node, Kind: kind, Verdict: verdict, Protocol: "tcp",
			From: web, To: db, Direction: direction,
		}, begin.Add(time.Duration(seconds)*time.Second))
	}
	rates := func(f view.FlowFilter, seconds int) view.Rates {
		v, err := l.View(f, begin.Add(time.Duration(seconds)*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		return v.Rates
	}
	check := func(what string, r view.Rates, points int, flows ...uint64) {
		t.Helper()
		for i, s := range r.Lines {
			if s.Flows != flows[i] || len(s.Rates) != points {
				t.Errorf("%s: %s: %d flows in %d points: %v", what, s.Verdict, s.Flows, len(s.Rates), s.Rates)
			}
		}
	}
	add(0, "node1", flow.Egress, flow.New, flow.Allowed) // in the step in which the observation has begun
	check("begin", rates(view.FlowFilter{}, 1), 0, 0, 0, 0)
	add(4, "node1", flow.Egress, flow.New, flow.Allowed)
	add(4, "node2", flow.Ingress, flow.New, flow.Allowed) // the same connection
	add(4, "node1", flow.Egress, flow.End, flow.Allowed)
	add(5, "node2", flow.Ingress, flow.Denied, flow.DeniedVerdict)
	add(5, "node2", flow.Ingress, flow.Denied, flow.DeniedVerdict)
	add(8, "node2", flow.Ingress, flow.Dropped, flow.DroppedVerdict)
	r := rates(view.FlowFilter{}, 9)
	check("before the step is over", r, 3, 1, 2, 0)
	if got := r.Lines[1]; !slices.Equal(got.Rates, []float64{0, 1, 0}) || got.Now != 0 || got.Peak != 1 || r.Flows != 3 {
		t.Errorf("%+v", r)
	}
	if r.Since != begin.Add(2*time.Second).UnixMilli() || r.Step != 2 || r.Span != 300 {
		t.Errorf("since %d, step %d, span %d", r.Since, r.Step, r.Span)
	}
	check("after it", rates(view.FlowFilter{}, 11), 4, 1, 2, 1)
	check("a filter", rates(view.FlowFilter{Verdict: "denied"}, 11), 4, 0, 2, 0)
	check("a filter of nothing", rates(view.FlowFilter{Namespace: "other"}, 11), 4, 0, 0, 0)
	check("later", rates(view.FlowFilter{}, 307), 150, 0, 0, 1)
	add(302, "node1", flow.Egress, flow.New, flow.Allowed) // in the place of one that is too old
	check("around", rates(view.FlowFilter{}, 307), 150, 1, 0, 1)
	check("much later", rates(view.FlowFilter{}, 3000), 150, 0, 0, 0)
}

// A node whose clock is ahead, by however much, hides no flows of others: its own have the time at which they arrive.
func TestRatesOfAClockThatIsAhead(t *testing.T) {
	begin := time.Date(2026, 1, 2, 15, 0, 0, 0, time.UTC)
	for _, ahead := range []time.Duration{time.Second, time.Minute, 5 * time.Minute, 302 * time.Second, time.Hour} {
		l := view.NewFlowLog(begin)
		for second := range 280 {
			now := begin.Add(time.Duration(second) * time.Second)
			for node, at := range map[string]time.Time{"node1": now, "node2": now.Add(ahead)} {
				l.Add(flow.Record{Time: at, Node: node, Kind: flow.New, Verdict: flow.Allowed, From: end("shop/web", node, 1)}, now)
			}
			if second == 0 {
				if _, err := l.View(view.FlowFilter{}, now); err != nil { // counts from now on
					t.Fatal(err)
				}
			}
		}
		v, err := l.View(view.FlowFilter{}, begin.Add(280*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		for i, rate := range v.Rates.Lines[0].Rates {
			if rate != 2 {
				t.Errorf("%s ahead: point %d of %d is %v: %v", ahead, i, len(v.Rates.Lines[0].Rates), rate, v.Rates.Lines[0].Rates)
				break
			}
		}
		if v.Flows[0].Time > begin.Add(280*time.Second).UnixMilli() {
			t.Errorf("%s ahead: a flow of the future", ahead)
		}
	}
}

// Flows are counted that the log has forgotten, and those of a filter that is new since the first one that it has not.
func TestRatesOfMany(t *testing.T) {
	begin := time.Date(2026, 1, 2, 15, 0, 0, 0, time.UTC)
	l := view.NewFlowLog(begin)
	now := begin.Add(100 * time.Second)
	show := func(f view.FlowFilter) view.Rates {
		v, err := l.View(f, now)
		if err != nil {
			t.Fatal(err)
		}
		return v.Rates
	}
	show(view.FlowFilter{})
	const all = 20_000
	for i := range all {
		l.Add(flow.Record{
			Time: begin.Add(10*time.Second + time.Duration(i)*4*time.Millisecond), Node: "node1", Kind: flow.New, Verdict: flow.Allowed,
			Protocol: "udp", From: end("shop/web", "node1", 1), To: end("shop/db", "node1", 53),
		}, now)
	}
	if r := show(view.FlowFilter{}); r.Flows != all || r.Lines[0].Peak != 250 {
		t.Errorf("%d flows of %d, %v in a second", r.Flows, all, r.Lines[0].Peak)
	}
	for _, namespace := range []string{"a", "b", "c", "d", "e", "f", "g", "h", "shop"} {
		show(view.FlowFilter{Namespace: namespace})
	}
	r := show(view.FlowFilter{Namespace: "shop"})
	if r.Flows == 0 || r.Flows > 4096 || r.Since < begin.Add(70*time.Second).UnixMilli() {
		t.Errorf("a new filter: %d flows since %v", r.Flows, time.UnixMilli(r.Since))
	}
	if r = show(view.FlowFilter{}); r.Flows > 4096 {
		t.Errorf("%d flows of a filter that was not shown for a while", r.Flows)
	}
}
