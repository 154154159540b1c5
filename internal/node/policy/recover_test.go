// SPDX-License-Identifier: Apache-2.0

package policy_test

import (
	"maps"
	"strings"
	"testing"

	"github.com/weft-net/weft/internal/nettest"
	plan "github.com/weft-net/weft/internal/plan/policy"
)

// TestUnwritable: while the node's table cannot be written no pod is admitted, a DEL succeeds, and no change is lost:
// all are written as soon as possible.
func TestUnwritable(t *testing.T) {
	w := newWorld(t)
	if out, err := nettest.Try(nil, "nft", "add table inet probe { flags owner; }; delete table inet probe"); err != nil {
		nettest.Skip(t, "this kernel has no owners of tables: "+out)
	}
	w.start()
	web, friend, other := w.pod("shop/web", "app: web"), w.pod("shop/friend", `friend: "yes"`),
		w.pod("shop/other", "app: other")
	gone := w.pod("shop/gone", "app: web")
	w.serve(web, 80)
	w.serve(friend, 80)
	leave := occupy(t, nil, "inet weft-policy")
	w.eventually("the table is another program's", func() bool {
		return strings.Contains(ruleset(), "table inet weft-policy")
	})
	w.manifest("friends", onlyFriends)
	w.eventually("it is tried again and again", func() bool { return w.Stats().Failures > 2 })
	w.object("shop/late", "app: web", "n1")
	late := w.guarded("shop/late")
	wantTryAgain(t, w.Admit(t.Context(), late), "network policies could not be written")
	if err := w.Release(t.Context(), gone.Attachment); err != nil {
		t.Errorf("a pod cannot go: %v", err)
	}
	w.object("shop/friend", `friend: "no"`, "n1") // changed while no table can be written
	w.object("shop/other", `friend: "yes"`, "n1")
	w.eventually("the new labels are known", func() bool {
		from := func(p *pod) plan.Answer { return answer(w, p, web) }
		return !from(friend).Allowed && from(other).Allowed
	})
	leave()
	w.eventually("the policy holds, as it is now", func() bool {
		return !reaches(friend.ns, web, 80) && reaches(other.ns, web, 80)
	})
	if !admits(other.ns, friend.addr, 80) {
		t.Error("a pod that no policy selects is cut off")
	}
	if table := ruleset(); strings.Contains(table, gone.link) || !strings.Contains(table, web.link) {
		t.Errorf("what happened while nothing could be written is lost:\n%s", table)
	}
	if err := w.Admit(t.Context(), late); err != nil {
		t.Error(err)
	}
}

// answer returns the policies' verdict on a connection to a pod's port 80.
func answer(w *world, from, to *pod) plan.Answer {
	w.t.Helper()
	all, err := w.Why(plan.Query{
		From: plan.ConnectionEnd{Pod: from.Pod}, To: plan.ConnectionEnd{Pod: to.Pod}, Protocol: "TCP", Port: 80,
	})
	if err != nil || len(all) != 1 {
		w.t.Fatalf("%+v, %v", all, err)
	}
	return all[0]
}

// TestDeniedAreKept: the counts of re-created chains are kept, and no packet is counted twice.
func TestDeniedAreKept(t *testing.T) {
	w := newWorld(t)
	w.manifest("friends", onlyFriends)
	w.start()
	web, other := w.pod("shop/web", "app: web"), w.pod("shop/other", "app: other")
	w.serve(web, 80)
	const by = "NetworkPolicy shop/friends ingress"
	w.eventually("packets are denied, and counted", func() bool {
		return !reaches(other.ns, web, 80) && w.Denied()[by] > 2
	})
	var was map[string]float64
	w.eventually("the counters rest", func() bool {
		was = w.Denied()
		return maps.Equal(was, w.Denied())
	})
	nettest.Run(t, nil, "nft", "flush ruleset")
	w.eventually("the table is back", func() bool { return strings.Contains(ruleset(), web.link) })
	if is := w.Denied(); is[by] < was[by] {
		t.Errorf("%v were denied, and now %v", was, is)
	}
	before := w.Denied()[by]
	w.eventually("what is denied now is counted, too", func() bool {
		return !reaches(other.ns, web, 80) && w.Denied()[by] > before
	})
}
