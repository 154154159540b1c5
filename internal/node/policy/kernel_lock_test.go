// SPDX-License-Identifier: Apache-2.0

package policy_test

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/nettest"
	"github.com/weft-net/weft/internal/node/policy"
	compiled "github.com/weft-net/weft/internal/plan/policy"
)

// TestNodeTablesTakeLong: during a slow write of the node's tables, queries are answered, pods with their own tables
// start with their policies, and pods end. The delayed changes are correct afterwards.
func TestNodeTablesTakeLong(t *testing.T) {
	w := newWorld(t)
	hold, held, release := make(chan bool, 1), make(chan bool), make(chan bool)
	w.start(func(c *policy.Config) {
		c.Writing = func(p compiled.EnforcementPoint) {
			select {
			case <-hold:
			default:
				return
			}
			if (p != compiled.EnforcementPoint{}) {
				hold <- true
				return
			}
			close(held)
			<-release
		}
	})
	web, friend, other := w.pod("shop/web", "app: web"), w.pod("shop/friend", `friend: "yes"`),
		w.pod("shop/other", "app: other")
	leaves := w.pod("shop/leaves", "app: leaves")
	friend1, other1 := w.bridged(friend, 3), w.bridged(other, 4)
	w.serve(web, 80)
	w.manifest("fast", onlyFastFriends)
	w.manifest("deny", strings.Replace(denyWeb, "{name: deny-web}", "{namespace: shop, name: deny-web}", 1))
	w.eventually("policies are known, and in force", func() bool {
		return w.Stats().Policies == 2 && !reaches(other.ns, web, 80)
	})

	hold <- true
	w.object("shop/late", "app: web", "n1")
	late := w.guarded("shop/late")
	done := make(chan error, 1)
	go func() { done <- w.Admit(t.Context(), late) }()
	select {
	case <-held:
	case <-time.After(time.Minute):
		t.Fatal("nothing is written on the node")
	}
	prompt := func(what string, do func()) {
		t.Helper()
		ready := make(chan struct{})
		go func() { defer close(ready); do() }()
		select {
		case <-ready:
		case <-time.After(time.Minute):
			close(release)
			t.Fatalf("%s waits for the node's tables", what)
		}
	}
	prompt("Stats", func() { w.Stats() })
	prompt("Known", func() { w.Known() })
	prompt("Denied", func() {
		if all := w.Denied(); len(all) == 0 {
			t.Error("nothing was denied")
		}
	})
	prompt("Why", func() {
		q := compiled.Query{
			From: compiled.ConnectionEnd{Addr: netip.MustParseAddr("10.9.0.77")}, To: compiled.ConnectionEnd{Pod: web.Pod}, Port: 80,
			Protocol: "TCP",
		}
		if all, err := w.Why(q); err != nil || len(all) == 0 || all[0].Allowed {
			t.Errorf("%v, %v", all, err)
		}
	})
	var web1 *pod
	prompt("the ADD of a pod that is judged in its namespace", func() { web1 = w.bridged(web, 2) })
	if out := nettest.Run(t, web.ns, "nft", "list", "tables"); !strings.Contains(out, compiled.TableName) {
		t.Errorf("it came without its policies: %s", out)
	}
	prompt("the DEL of a pod", func() {
		if err := w.Release(t.Context(), leaves.Attachment); err != nil {
			t.Error(err)
		}
	})
	select {
	case err := <-done:
		t.Errorf("the ADD of a pod that is judged on the node did not wait: %v", err)
	default:
	}
	close(release)
	if err := <-done; err != nil {
		t.Error(err)
	}
	w.eventually("friends reach it, others do not", func() bool {
		return reaches(friend1.ns, web1, 80) && !reaches(other1.ns, web1, 80)
	})
	w.eventually("the node's table knows who came and who went", func() bool {
		rules := nettest.Run(t, nil, "nft", "list", "table", compiled.TableFamily, compiled.TableName)
		return !strings.Contains(rules, leaves.HostLink) && w.Stats().Failures == 0
	})
}
