// SPDX-License-Identifier: Apache-2.0

package watch_test

import (
	"context"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/weft-net/weft/internal/kernel"
	"github.com/weft-net/weft/internal/kernel/watch"
	"github.com/weft-net/weft/internal/nettest"
	"github.com/weft-net/weft/internal/state"
)

// TestExternalChanges: external changes of the table are reported; its owner's changes, and changes of other tables, are not,
// neither here nor by TablesGone.
func TestExternalChanges(t *testing.T) {
	defer goleak.VerifyNone(t)
	ns := nettest.NS(t, "node")
	c, err := kernel.Dial(ns)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	port, err := c.Port()
	if err != nil {
		t.Fatal(err)
	}
	own := watch.Owner{Port: port, Table: "weft-mine"}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	changed, err := watch.ExternalChanges(ctx, ns, own)
	if err != nil {
		t.Fatal(err)
	}
	gone, err := watch.TablesGone(ctx, ns, own)
	if err != nil {
		t.Fatal(err)
	}
	apply := func(name string, chains ...string) {
		table := state.Table{
			Family: "inet", Name: name, Sets: []state.Set{
				{Name: "s", Key: "ipv4_addr", Elements: []state.Element{{Key: []string{"10.0.0.1"}}}},
			},
		}
		for _, chain := range chains {
			table.Chains = append(table.Chains, state.Chain{Name: chain, Rules: []state.NftRule{{Text: "accept"}}})
		}
		if err := (kernel.Spaces{
			Host: c,
		}).Apply(t.Context(), state.Fragment{Owner: "o", Host: state.Space{Tables: []state.Table{table}}}); err != nil {
			t.Fatal(err)
		}
	}
	heard := func(c <-chan struct{}, limit time.Duration) bool {
		select {
		case <-c:
			return true
		case <-time.After(limit):
			return false
		}
	}
	apply("weft-mine", "a", "b")
	apply("weft-mine")
	nettest.Run(t, ns, "nft",
		"add table inet weft-mine2; add chain inet weft-mine2 c; add element inet weft-mine s { 10.0.0.1 }")
	nettest.Run(t, ns, "nft", "delete element inet weft-mine s { 10.0.0.1 }")
	if !heard(changed, time.Minute) {
		t.Error("a deleted element is not heard of")
	}
	for heard(changed, 200*time.Millisecond) { // the added element and the deleted one may be heard of one by one
	}
	apply("weft-mine", "c")
	apply("weft-mine")
	if heard(changed, 50*time.Millisecond) || heard(gone, 0) {
		t.Error("the owner's own changes are heard of")
	}
	nettest.Run(t, ns, "nft", "delete table inet weft-mine2")
	if heard(changed, 50*time.Millisecond) || !heard(gone, time.Minute) {
		t.Error("another table's end is heard of by the wrong one")
	}
	nettest.Run(t, ns, "nft", "flush ruleset")
	if !heard(changed, time.Minute) || !heard(gone, time.Minute) {
		t.Error("a flushed ruleset is not heard of")
	}
	cancel()
	for range changed {
	}
	for range gone {
	}
}
