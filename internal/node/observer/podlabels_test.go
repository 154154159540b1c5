// SPDX-License-Identifier: Apache-2.0

package observer_test

import (
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/weft-net/weft/internal/flow"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/node/observer"
)

// A flow has the labels that its pods have at that time, also of a pod that came later, of which the labels changed, or of
// which the object is gone. Without the parameter it has none.
func TestLabelsOfTheTime(t *testing.T) {
	t.Cleanup(func() { goleak.VerifyNone(t) })
	var pods atomic.Pointer[[]model.Pod]
	set := func(labels map[string]string) {
		all := []model.Pod{
			{Namespace: "shop", Name: "web", Node: "node1", Labels: map[string]string{"app": "web"}},
			{Namespace: "shop", Name: "far", Node: "node2", Labels: map[string]string{"app": "far"}},
		}
		if labels != nil {
			all = append(all, model.Pod{Namespace: "shop", Name: "db", Node: "node1", Labels: labels})
		}
		pods.Store(&all)
	}
	set(nil)
	n := newNode(t, func(c *observer.Config) {
		c.Pods = func() []model.Pod { return *pods.Load() }
		c.Level = flow.LevelFlows
	})
	defer n.run(t)()
	n.records.set(map[string]string{"shop/web": "10.42.1.2"})
	with := n.read(t, map[string][]string{observer.ParameterFollow: {"true"}, observer.ParameterLabels: {"true"}})
	defer func() { with.stop(); <-with.done }()
	without := n.read(t, map[string][]string{observer.ParameterFollow: {"true"}})
	defer func() { without.stop(); <-without.done }()
	if b := with.next("beginning", func(l flow.Line) bool { return l.Begin != nil }).Begin; !b.Labels {
		t.Error("the beginning does not report labels")
	}
	if b := without.next("beginning", func(l flow.Line) bool { return l.Begin != nil }).Begin; b.Labels {
		t.Error("the beginning reports labels that were not asked for")
	}
	with.begun()
	without.begun()
	check := func(port int, want flow.LabelSet, changed bool) {
		t.Helper()
		n.send(t, "10.42.1.2", "10.42.1.3:80", port, 1)
		if changed {
			with.next("holder with labels", func(l flow.Line) bool {
				return l.Holder != nil && l.Holder.Identity != nil && l.Holder.Identity.Name == "shop/db" && l.Holder.Identity.Labels == want
			})
		}
		f := with.flow("labels", func(f flow.Record) bool { return int(f.From.Port) == port })
		if f.To.Labels != want || f.From.Labels != flow.NewLabelSet(map[string]string{"app": "web"}) {
			t.Errorf("port %d: from %v to %v, want %v", port, f.From.Labels.Map(), f.To.Labels.Map(), want.Map())
		}
	}
	check(4001, flow.LabelSet{}, false) // no pod yet
	n.records.set(map[string]string{"shop/web": "10.42.1.2", "shop/db": "10.42.1.3"})
	check(4002, flow.LabelSet{}, false) // not known yet
	for i, app := range []string{"db", "db2", "db3"} {
		labels := map[string]string{"app": app}
		set(labels)
		check(4010+i, flow.NewLabelSet(labels), true)
	}
	set(nil) // the object is deleted before the interface
	check(4020, flow.NewLabelSet(map[string]string{"app": "db3"}), false)
	f := without.flow("no labels", func(f flow.Record) bool { return f.From.Port == 4012 })
	if f.From.Name != "shop/web" || f.To.Name != "shop/db" || f.From.Labels.Known() || f.To.Labels.Known() {
		t.Errorf("%+v", f)
	}
	// Those of the past have the labels of their time.
	past := n.read(t, map[string][]string{observer.ParameterSince: {time.Now().Add(-time.Hour).Format(time.RFC3339Nano)}, observer.ParameterLabels: {"true"}})
	apps := map[uint16]string{}
	for l := range past.all() {
		if l.Flow != nil && l.Flow.Kind == flow.New {
			apps[l.Flow.From.Port] = l.Flow.To.Labels.Map()["app"]
		}
	}
	if apps[4010] != "db" || apps[4011] != "db2" || apps[4020] != "db3" {
		t.Errorf("the past: %v", apps)
	}
}
