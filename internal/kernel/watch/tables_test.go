// SPDX-License-Identifier: Apache-2.0

package watch_test

import (
	"context"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/weft-net/weft/internal/kernel/watch"
	"github.com/weft-net/weft/internal/nettest"
)

// TestTablesGone: deleted tables, chains, rules and sets are heard; what attaching and detaching a pod does is not.
func TestTablesGone(t *testing.T) {
	defer goleak.VerifyNone(t)
	ns, other := nettest.NS(t, "node"), nettest.NS(t, "other")
	run := func(c string) { nettest.Run(t, ns, "nft", c) }
	ctx, cancel := context.WithCancel(t.Context())
	gone, err := watch.TablesGone(ctx, ns)
	if err != nil {
		t.Fatal(err)
	}
	nettest.Run(t, other, "nft", "add table inet t; flush ruleset")
	for _, quiet := range []string{
		"add table inet t", "add set inet t s { type ipv4_addr; }",
		"add chain inet t c { type filter hook forward priority 0; }",
		"add rule inet t c ip saddr @s accept", "add element inet t s { 10.0.0.1, 10.0.0.2 }",
		"delete element inet t s { 10.0.0.1 }",
		"add table inet u",
	} {
		run(quiet)
		select {
		case <-gone:
			t.Errorf("heard of: nft %s", quiet)
		case <-time.After(20 * time.Millisecond):
		}
	}
	for _, loud := range []string{
		"flush chain inet t c", "delete chain inet t c", "delete set inet t s", "delete table inet t", "flush ruleset",
	} {
		run(loud)
		select {
		case <-gone:
		case <-time.After(3 * time.Second):
			t.Errorf("not heard of: nft %s", loud)
		}
	}
	cancel()
	select {
	case _, open := <-gone:
		if open {
			<-gone
		}
	case <-time.After(3 * time.Second):
		t.Error("the channel is not closed")
	}
}
