// SPDX-License-Identifier: Apache-2.0

package policy_test

import (
	"context"
	"strings"
	"testing"

	"github.com/weft-net/weft/internal/kernel/nflog"
	"github.com/weft-net/weft/internal/nettest"
	"github.com/weft-net/weft/internal/node/policy"
)

// TestDeniedInPods: packets denied in a pod's own namespace are logged like those on the node, with the names of the
// pods of its network; another listener there does not affect the policy.
func TestDeniedInPods(t *testing.T) {
	w := newWorld(t)
	w.manifest("fast", onlyFastFriends)
	w.start()
	web, other := w.pod("shop/web", "app: web"), w.pod("shop/other", "app: other")
	web1, other1 := w.bridged(web, 2), w.bridged(other, 4)
	w.serve(web, 80)
	if reaches(other.ns, web1, 80) || strings.Contains(nettest.Run(t, web.ns, "nft", "list", "ruleset"), "log ") {
		t.Error("packets are logged that nobody asked for")
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	l, err := nflog.Listen(ctx, web.ns, 9119, func(nflog.Packet) {})
	if err != nil {
		nettest.Skip(t, "the kernel has no nflog: "+err.Error())
	}
	w.start(func(c *policy.Config) { c.LogGroup = 9119 })
	w.eventually("it is said who is not heard", func() bool {
		return w.logged("denied packets of a pod cannot be logged", "pod=shop/web")
	})
	if reaches(other.ns, web1, 80) {
		t.Error("everybody is let in")
	}
	cancel()
	<-l.Done()
	w.bridged(w.pod("shop/more", `friend: "yes"`), 5) // the place is checked again
	logged := func() bool {
		return !reaches(other.ns, web1, 80) &&
			w.logged(`rule=in:MultiNetworkPolicy:shop/fast packet="tcp 10.8.0.4:`, `> 10.8.0.2:80" from=shop/other to=shop/web`)
	}
	w.eventually("a packet denied in the pod is logged", logged)
	for _, p := range []*pod{web1, other1} {
		if err := w.Release(t.Context(), p.Attachment); err != nil {
			t.Error(err)
		}
	}
}

// TestDeniedAtPorts: packets denied at a bridge port are logged, too.
func TestDeniedAtPorts(t *testing.T) {
	w := newWorld(t)
	w.manifest("fast", onlyFastFriends)
	w.start(func(c *policy.Config) { c.LogGroup = 9119 })
	web, other := w.pod("shop/web", "app: web"), w.pod("shop/other", "app: other")
	web1 := w.vm(web, 2)
	w.vm(other, 4)
	w.serve(web, 80)
	w.eventually("a packet denied at the port is logged", func() bool {
		return !reaches(other.ns, web1, 80) &&
			w.logged(`rule=in:MultiNetworkPolicy:shop/fast packet="tcp 10.8.0.4:`, `> 10.8.0.2:80" from=shop/other to=shop/web`)
	})
}

// logged reports whether one line of the log has all the words.
func (w *world) logged(words ...string) bool {
	for line := range strings.Lines(w.log.String()) {
		all := true
		for _, word := range words {
			all = all && strings.Contains(strings.ReplaceAll(line, `\"`, `"`), word)
		}
		if all {
			return true
		}
	}
	return false
}
