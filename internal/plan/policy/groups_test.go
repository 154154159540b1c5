// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"maps"
	"net/netip"
	"testing"

	"github.com/weft-net/weft/internal/model"
)

// Groups follow a cluster without any table: an address that two pods share comes with the first and goes with the last
// of them.
func TestGroupsFollow(t *testing.T) {
	c := newCluster()
	gs := newGroups(c)
	c.observer, c.pods.observer = gs, gs
	g := gs.use(&groupSpec{id: "web", networks: []string{""}, terms: []term{compileTerm(model.PodPeer{
		Namespace: "x", Pods: model.Selector{Labels: map[string]string{"app": "web"}},
	})}})
	shared := netip.MustParseAddr("10.0.0.1")
	pod := func(name, app string) model.Pod {
		return model.Pod{Namespace: "x", Name: name, Labels: map[string]string{"app": app}, IPs: []netip.Addr{shared}}
	}
	pending := func(step string, want map[element]bool) {
		t.Helper()
		if !maps.Equal(g.pending, want) {
			t.Errorf("%s: pending %v, want %v", step, g.pending, want)
		}
		clear(g.pending)
	}
	came, went := map[element]bool{{addr: shared}: true}, map[element]bool{{addr: shared}: false}

	c.pods.setPod(pod("a", "web"))
	pending("the first pod", came)
	c.pods.setPod(pod("b", "web"))
	pending("a second pod of the same address", nil)
	c.pods.setPod(pod("a", "db"))
	pending("the first is selected no more", nil)
	c.pods.delPod("x", "b")
	pending("the second is gone", went)
	c.pods.setPod(pod("a", "web"))
	c.pods.setPod(pod("a", "db"))
	pending("there and back", nil)

	g.refs--
	gs.sweep()
	c.pods.delPod("x", "a")
	if left := len(gs.all) + len(gs.of) + len(c.pods.namespaces); left != 0 {
		t.Errorf("left: groups %v, of %v, spaces %v", gs.all, gs.of, c.pods.namespaces)
	}
}
