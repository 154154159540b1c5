// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"net/netip"
	"testing"

	"github.com/weft-net/weft/internal/kernel/watch"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/state"
)

// TestNeighborsInPods: an expired neighbor that a pod has learned triggers no check of its attachments; the loss of one
// that an attachment has made does, and so does any other change. If there is a VM in the container, any neighbor may
// be the VM's.
func TestNeighborsInPods(t *testing.T) {
	gateway, learned := netip.MustParseAddr("169.254.1.1"), netip.MustParseAddr("10.8.0.9")
	rec := Record{
		NetnsID: 7, Request: model.Request{Network: "net", ContainerID: "c1", IfName: "eth0", Netns: "/run/netns/c1"},
	}
	rec.Acts = []Act{
		{
			Kind: ActApply, Fragment: &state.Fragment{
				Owner: "c1", Pod: state.Space{Neighs: []state.Neigh{{Link: "eth0", IP: gateway}}},
			},
		},
	}
	x := newObjectIndex()
	x.note(rec, true)
	x.resolve(map[uint64]int{7: 3}, nil)
	for _, c := range []struct {
		name string
		kind watch.Kind
		addr netip.Addr
		vm   bool
		want int
	}{
		{"its gateway", watch.Neigh, gateway, false, 1},
		{"one that it has learned", watch.Neigh, learned, false, 0},
		{"one that it has learned, of a machine", watch.Neigh, learned, true, 1},
		{"an address", watch.Addr, learned, false, 1},
		{"a route", watch.Route, netip.Addr{}, false, 1},
	} {
		change := watch.Change{NSID: 3}
		change.Kind, change.Addr, change.Gone = c.kind, c.addr, true
		keys, unknown := x.inPod(change, func(string) bool { return c.vm })
		if len(keys) != c.want || unknown {
			t.Errorf("%s: %d attachments, want %d, unknown %v", c.name, len(keys), c.want, unknown)
		}
	}
}

// TestEffectOnRules: the loss of a policy routing rule on the node counts for the attachment that has it; the loss of
// others is a change next to it.
func TestEffectOnRules(t *testing.T) {
	from := netip.MustParsePrefix("10.8.0.2/32")
	o := &objects{Space: state.Space{Rules: []state.Rule{{Priority: 100, From: from, Table: 77}}}}
	rule := func(priority, table uint32, from netip.Prefix) watch.Change {
		c := watch.Change{From: from}
		c.Kind, c.Gone, c.Metric, c.Table = watch.Rule, true, priority, table
		return c
	}
	for name, c := range map[string]struct {
		change watch.Change
		want   changeEffect
	}{
		"its rule":         {rule(100, 77, from), lossOf},
		"another priority": {rule(101, 77, from), nearby},
		"another table":    {rule(100, 78, from), nearby},
		"another source":   {rule(100, 77, netip.MustParsePrefix("10.8.0.3/32")), nearby},
		"any source":       {rule(100, 77, netip.Prefix{}), nearby},
	} {
		if got := o.effect(c.change, func() bool { return false }); got != c.want {
			t.Errorf("%s: effect %d, want %d", name, got, c.want)
		}
	}
}

// TestChangesOfUnknown: what a DEL takes away asks for no id, and of a pod whose id is not known yet no change is
// missed, even where the id was one to ignore.
func TestChangesOfUnknown(t *testing.T) {
	rec := func(container string, netns uint64) Record {
		return Record{
			NetnsID: netns, Request: model.Request{
				Network: "net", ContainerID: container, IfName: "eth0", Netns: "/run/netns/" + container,
			},
		}
	}
	noPod := func(string) bool { return false }
	gone := watch.Change{NSID: 3}
	gone.Kind, gone.Gone = watch.Addr, true
	x := newObjectIndex()
	if !x.note(rec("c1", 7), true) || x.note(rec("c2", 8), true) {
		t.Error("two new namespaces are one reason to ask for ids")
	}
	x.resolve(map[uint64]int{7: 3, 8: 4}, nil)
	x.drop(rec("c1", 7).Key())
	if _, unknown := x.inPod(gone, noPod); unknown {
		t.Error("what is taken away by a DEL asks for an id")
	}
	if fresh, waiting := x.unresolved(); fresh || waiting {
		t.Errorf("fresh %v, waiting %v: nothing is to be asked", fresh, waiting)
	}
	x.note(rec("c3", 9), true)
	if _, unknown := x.inPod(gone, noPod); !unknown {
		t.Error("a change in a namespace that may be a new pod's is not noted")
	}
	if _, again := x.inPod(gone, noPod); again {
		t.Error("one namespace is asked for twice")
	}
	if keys := x.resolve(map[uint64]int{9: 3}, nil); len(keys) != 1 || keys[0] != rec("c3", 9).Key() {
		t.Errorf("after the id is known %v are looked at, want c3", keys)
	}
}
