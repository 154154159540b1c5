// SPDX-License-Identifier: Apache-2.0

package flow_test

import (
	"encoding/json"
	"maps"
	"net/netip"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/flow"
)

// Equal sets are equal values; no labels are not unknown ones, also in JSON.
func TestLabelSet(t *testing.T) {
	web := flow.NewLabelSet(map[string]string{"tier": "", "app": "web"})
	if web != flow.NewLabelSet(map[string]string{"app": "web", "tier": ""}) || web == flow.NewLabelSet(map[string]string{"app": "web"}) {
		t.Error("equal sets differ, or others do not")
	}
	for want, s := range map[string]flow.LabelSet{
		`{"kind":"pod"}`: {}, `{"kind":"pod","labels":{}}`: flow.NewLabelSet(nil), `{"kind":"pod","labels":{"app":"web","tier":""}}`: web,
	} {
		b, err := json.Marshal(flow.Identity{Kind: flow.PodEnd, Labels: s})
		if err != nil || string(b) != want {
			t.Errorf("%v: %s, want %s", err, b, want)
		}
		var back flow.Identity
		if err := json.Unmarshal(b, &back); err != nil || back.Labels != s || !maps.Equal(back.Labels.Map(), s.Map()) {
			t.Errorf("%s: %v, %v", b, err, back.Labels.Map())
		}
	}
}

// The labels of a flow decide, and not those that its pod has now.
func TestFilterByLabelsOfTheFlow(t *testing.T) {
	now := func(string) map[string]string { return map[string]string{"app": "new"} }
	r := sample()
	r.From.Labels = flow.NewLabelSet(map[string]string{"app": "old"})
	r.To.Labels = flow.NewLabelSet(nil)
	for value, want := range map[string]bool{"app=old": true, "app=new": false, "app": true, "!app": false} {
		var f flow.Filter
		if err := f.Add(flow.FieldLabel, flow.From, false, value); err != nil {
			t.Fatal(err)
		}
		if got := f.Match(r, now); got != want {
			t.Errorf("%s: %t", value, got)
		}
	}
	var f flow.Filter
	if err := f.Add(flow.FieldLabel, flow.To, false, "!app"); err != nil || !f.Match(r, now) {
		t.Errorf("%v: a pod without labels is not selected", err)
	}
}

// The far end of a flow has the labels that its pod had at that time, by its own node's lines and flows.
func TestDirectoryOfLabels(t *testing.T) {
	d, addr, begin := flow.NewDirectory(), netip.MustParseAddr("10.42.2.9"), time.Unix(1000, 0)
	id := func(app string) flow.Identity {
		return flow.Identity{Kind: flow.PodEnd, Name: "shop/db", Node: "node2", Labels: flow.NewLabelSet(map[string]string{"app": app})}
	}
	third := id("third")
	d.AddHolder(flow.Holder{Time: begin.Add(30 * time.Second), Addr: addr, Identity: &third})
	for second, app := range map[int]string{10: "first", 20: "second", 25: "third"} { // in any order
		d.AddLabels(&flow.Record{Time: begin.Add(time.Duration(second) * time.Second), Node: "node2", To: flow.Endpoint{Addr: addr, Identity: id(app)}})
	}
	d.AddLabels(&flow.Record{Time: begin.Add(15 * time.Second), Node: "node1", To: flow.Endpoint{Addr: addr, Identity: id("hearsay")}})
	for second, want := range map[int]string{5: "first", 12: "first", 19: "first", 20: "second", 26: "third", 60: "third"} {
		r := flow.Record{Time: begin.Add(time.Duration(second) * time.Second), Node: "node1", To: flow.Endpoint{Addr: addr, Identity: flow.Identity{Kind: flow.OutsideEnd}}}
		if d.Complete(&r); r.To.Name != "shop/db" || r.To.Labels != id(want).Labels {
			t.Errorf("at %d: %+v %v, want %s", second, r.To, r.To.Labels.Map(), want)
		}
	}
	count := 0
	for range d.Labels() {
		count++
	}
	if count != 3 {
		t.Errorf("%d sets of labels", count)
	}
}
