// SPDX-License-Identifier: Apache-2.0

package view_test

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/flow"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/web/view"
)

// end returns a pod's end, or one outside.
func end(name, node string, port uint16) flow.Endpoint {
	e := flow.Endpoint{Addr: netip.MustParseAddr("192.0.2.1"), Port: port, Identity: flow.Identity{Kind: flow.OutsideEnd}}
	if name != "" {
		e.Identity = flow.Identity{Kind: flow.PodEnd, Name: name, Node: node}
	}
	return e
}

func TestFlows(t *testing.T) {
	begin := time.Date(2026, 1, 2, 15, 0, 0, 0, time.UTC)
	l := view.NewFlowLog(begin)
	add := func(seconds int, node, direction string, kind flow.Kind, verdict flow.Verdict, from, to flow.Endpoint) {
		r := flow.Record{
			Time: begin.Add(time.Duration(seconds) * time.Second), Node: node, Kind: kind, Verdict: verdict, Protocol: "tcp",
			From: from, To: to, Direction: direction,
		}
		if verdict == flow.DeniedVerdict {
			r.Decisions = []flow.Decision{{Direction: "ingress", Rule: -1, Policies: []model.PolicyKey{
				{Kind: model.KindNetworkPolicy, Namespace: "shop", Name: "db"},
			}}}
		}
		l.Add(r, r.Time)
	}
	web, db := end("shop/web", "node1", 40000), end("shop/db", "node2", 5432)
	add(1, "node1", flow.Egress, flow.New, flow.Allowed, web, db) // more than a minute ago
	add(50, "node1", flow.Egress, flow.New, flow.Allowed, web, db)
	add(50, "node2", flow.Ingress, flow.New, flow.Allowed, web, db) // the same connection
	add(51, "node2", flow.Ingress, flow.Denied, flow.DeniedVerdict, end("other/job", "node1", 1), db)
	add(52, "node2", flow.Ingress, flow.New, flow.Allowed, end("", "", 7), db)
	add(53, "node1", flow.Egress, flow.End, flow.Allowed, web, db)
	now := begin.Add(80 * time.Second)
	for _, c := range []struct {
		filter  view.FlowFilter
		flows   int
		pairs   string
		command string
	}{
		{view.FlowFilter{}, 6, "192.0.2.1>shop/db allowed 1, other/job>shop/db denied 1, shop/web>shop/db allowed 1", "weft observe -f"},
		{view.FlowFilter{Pod: "web"}, 4, "shop/web>shop/db allowed 1", "weft observe -f --pod '*/web*'"},
		{view.FlowFilter{Pod: "shop/db", Verdict: "denied,dropped"}, 1, "other/job>shop/db denied 1",
			"weft observe -f --pod shop/db --verdict denied,dropped"},
		{view.FlowFilter{Namespace: "other", Port: "5432"}, 1, "other/job>shop/db denied 1",
			"weft observe -f --namespace other --port 5432"},
		{view.FlowFilter{Port: "80"}, 0, "", "weft observe -f --port 80"},
	} {
		v, err := l.View(c.filter, now)
		if err != nil {
			t.Fatal(err)
		}
		var pairs []string
		for _, p := range v.Pairs {
			pairs = append(pairs, p.From+">"+p.To+" "+p.Verdict+" "+string(rune('0'+p.Flows)))
		}
		if got := strings.Join(pairs, ", "); len(v.Flows) != c.flows || got != c.pairs || v.Command != c.command || v.Total != 6 {
			t.Errorf("%+v: %d flows, pairs %q, command %q", c.filter, len(v.Flows), got, v.Command)
		}
	}
	v, _ := l.View(view.FlowFilter{}, now)
	if f := v.Flows[2]; f.Why != "ingress NetworkPolicy shop/db" || f.FromName != "other/job" || f.Port != 5432 || f.Verdict != "denied" {
		t.Errorf("%+v", f)
	}
	if _, err := l.View(view.FlowFilter{Port: "x"}, now); err == nil || !strings.Contains(err.Error(), "port") {
		t.Errorf("port x: %v", err)
	}
}

// The log is bounded, and so is what it shows.
func TestFlowsBounded(t *testing.T) {
	begin := time.Date(2026, 1, 2, 15, 0, 0, 0, time.UTC)
	l := view.NewFlowLog(begin)
	const all = 20_000
	for i := range all {
		l.Add(flow.Record{
			Time: begin, Node: "node1", Kind: flow.New, Verdict: flow.Allowed, Protocol: "udp", From: end("shop/web", "node1", 1),
			To: end("shop/db", "node1", uint16(i)),
		}, begin)
		l.Note("node1: an agent does not answer")
		l.Note(strings.Repeat("x", i%100))
	}
	v, err := l.View(view.FlowFilter{}, begin)
	if err != nil || v.Total != all || len(v.Flows)+v.More > 4096 || len(v.Flows) > 200 || len(v.Pairs) > 60 || len(v.Notes) > 20 {
		t.Errorf("%v: total %d, %d flows, %d more, %d pairs, %d notes", err, v.Total, len(v.Flows), v.More, len(v.Pairs), len(v.Notes))
	}
}

// The map has a line for each pair and verdict of what is drawn, and counts the others.
func TestMapTraffic(t *testing.T) {
	m := view.NewMap(view.MapInput{Nodes: mesh(2, 2), Columns: 2, Pairs: []view.Pair{
		{From: "shop/pod-1-0", To: "shop/pod-2-1", Verdict: "allowed", Port: 80, Flows: 3},
		{From: "shop/pod-1-0", To: "shop/pod-2-1", Verdict: "allowed", Port: 81, Flows: 2},
		{From: "shop/pod-1-0", To: "shop/pod-2-1", Verdict: "denied", Port: 82, Flows: 900},
		{From: "node1", To: "shop/pod-2-1", Verdict: "allowed", Flows: 1},
		{From: "192.0.2.1", To: "shop/pod-2-1", Verdict: "allowed", Flows: 7},
	}})
	if len(m.Ways) != 3 || m.OtherFlows != 7 {
		t.Fatalf("%d others, %+v", m.OtherFlows, m.Ways)
	}
	to := m.Boxes[1].Chips[1]
	for i, want := range []struct{ flows, width int }{{1, 1}, {5, 2}, {900, 5}} {
		w := m.Ways[i]
		if w.Flows != want.flows || w.Width != want.width || w.X2 != to.X+to.W/2 || w.Y2 != to.Y+to.H/2 {
			t.Errorf("way %d: %+v", i, w)
		}
	}
}
