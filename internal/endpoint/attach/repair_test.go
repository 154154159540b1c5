// SPDX-License-Identifier: Apache-2.0

package attach_test

import (
	"context"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weft-net/weft/internal/endpoint/attach"
	"github.com/weft-net/weft/internal/nettest"
)

// What others have flushed is there again after RepairRules, and a second one writes nothing.
func TestRepairRules(t *testing.T) {
	n := newNode(t)
	conf := n.list(bridge)
	var jobs []attach.Job
	for range 3 {
		id, ns := n.pod()
		jobs = append(jobs, n.job(conf, id, ns))
		n.add(jobs[len(jobs)-1])
	}
	const foreign = "add table inet foreign; add set inet foreign s { type ipv4_addr; elements = { 10.8.0.2 }; }"
	ruleset := func() string { return nettest.Run(t, nil, "nft", "-s", "list", "ruleset") }
	before := ruleset()
	for name, outsider := range map[string]string{
		"nothing": "list tables", "all": "flush ruleset", "a table": "delete table inet weft",
		"elements": "flush set inet weft masq4", "a chain": "flush chain inet weft postrouting",
	} {
		nettest.Run(t, nil, "nft", outsider)
		nettest.Run(t, nil, "nft", foreign)
		if err := n.RepairRules(t.Context(), false); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		handles := nettest.Run(t, nil, "nft", "-a", "list", "ruleset")
		if err := n.RepairRules(t.Context(), false); err != nil {
			t.Errorf("%s, again: %v", name, err)
		}
		if d := cmp.Diff(handles, nettest.Run(t, nil, "nft", "-a", "list", "ruleset")); d != "" {
			t.Errorf("%s: a second pass wrote something (-first +second):\n%s", name, d)
		}
		nettest.Run(t, nil, "nft", "delete table inet foreign")
		if d := cmp.Diff(before, ruleset()); d != "" {
			t.Errorf("%s (-before +after):\n%s", name, d)
		}
		for _, job := range jobs {
			if err := n.Check(t.Context(), job); err != nil {
				t.Errorf("%s: CHECK: %v", name, err)
			}
		}
	}
	for _, job := range jobs {
		if err := n.Del(t.Context(), job); err != nil {
			t.Error(err)
		}
	}
	n.clean("DEL")
}

// RepairRules during ADDs and DELs restores nothing of a deleted attachment.
func TestRepairDuringCalls(t *testing.T) {
	n := newNode(t)
	conf := n.list(bridge)
	ctx, cancel := context.WithCancel(t.Context())
	var calls, mender sync.WaitGroup
	passes := 0
	mender.Go(func() {
		for ; ctx.Err() == nil; passes++ {
			if _, err := nettest.Try(nil, "nft", "flush", "ruleset"); err != nil {
				t.Error(err)
			}
			if err := n.RepairRules(ctx, false); err != nil && ctx.Err() == nil {
				t.Errorf("RepairRules: %v", err)
			}
		}
	})
	for range 8 {
		id, ns := n.pod()
		job := n.job(conf, id, ns)
		calls.Go(func() {
			for range 10 {
				if _, err := n.Add(t.Context(), job); err != nil {
					t.Error(err)
				}
				if err := n.Del(t.Context(), job); err != nil {
					t.Error(err)
				}
			}
		})
	}
	calls.Wait()
	cancel()
	mender.Wait()
	t.Logf("%d passes", passes)
	n.clean("ADDs and DELs beside RepairRules")
}
