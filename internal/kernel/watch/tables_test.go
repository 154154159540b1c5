// SPDX-License-Identifier: Apache-2.0

package watch_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/weft-net/weft/internal/kernel"
	"github.com/weft-net/weft/internal/kernel/watch"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/nettest"
	"github.com/weft-net/weft/internal/state"
)

// TestTablesGone: deleted tables, chains, rules and sets are reported; attaching and detaching a pod is not.
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
		case <-time.After(time.Minute):
			t.Errorf("not heard of: nft %s", loud)
		}
	}
	cancel()
	select {
	case _, open := <-gone:
		if open {
			<-gone
		}
	case <-time.After(time.Minute):
		t.Error("the channel is not closed")
	}
}

// mixed is a transaction that begins with additions and continues with a command, in one packet of the kernel's.
func mixed(additions int, command string) string {
	var b strings.Builder
	for i := range additions {
		fmt.Fprintf(&b, "add table inet more%d; ", i)
	}
	return b.String() + command
}

// TestRulesGone: what is deleted is reported, elements as well, wherever in a transaction, and so are rules and chains
// that are added to an attachment's tables; the owner's own changes and other additions are not.
func TestRulesGone(t *testing.T) {
	t.Cleanup(func() { goleak.VerifyNone(t) })
	ns := nettest.NS(t, "node")
	own, err := kernel.Dial(ns)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = own.Close() })
	port, err := own.Port()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	gone, err := watch.RulesGone(ctx, ns, port)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		for range gone {
		}
	})
	const chain = "add table inet %[1]s; add chain inet %[1]s c { type filter hook forward priority 0; }; " +
		"add set inet %[1]s s { type ipv4_addr; }; add element inet %[1]s s { 10.0.0.1, 10.0.0.2, 10.0.0.3 }"
	run := func(c string) { t.Helper(); nettest.Run(t, ns, "nft", c) }
	loud := func(c string) {
		t.Helper()
		run(c)
		select {
		case <-gone:
		case <-time.After(time.Minute):
			t.Errorf("not reported: nft %s", c)
		}
	}
	quiet := func(what string, do func()) {
		t.Helper()
		do()
		select {
		case <-gone:
			t.Errorf("reported: %s", what)
		case <-time.After(20 * time.Millisecond):
		}
	}
	for _, table := range []string{"weft", "weft_source"} {
		loud(fmt.Sprintf(chain, table)) // a chain is added
		loud("insert rule inet " + table + " c accept")
		quiet("an element", func() { run("add element inet " + table + " s { 10.0.0.4 }") })
		loud("delete element inet " + table + " s { 10.0.0.4 }")
	}
	for _, table := range []string{"other", "weftless", "weft-mesh"} {
		quiet("another program's table", func() { run(fmt.Sprintf(chain, table)) })
		quiet("another program's rule", func() { run("insert rule inet " + table + " c accept") })
	}
	loud(mixed(1, "delete element inet other s { 10.0.0.1 }"))
	loud(mixed(14, "delete element inet other s { 10.0.0.2 }"))
	loud(mixed(40, "delete element inet other s { 10.0.0.3 }"))
	quiet("many additions", func() { run(mixed(40, "add table inet last")) })
	quiet("the owner's own changes", func() {
		f := state.Fragment{Owner: "o", Host: state.Space{Tables: []state.Table{{
			Family: "inet", Name: "weft_mine", Chains: []state.Chain{{Name: "c", Rules: []state.NftRule{{Text: "accept"}}}},
		}}}}
		if err := errors.Join((kernel.Spaces{Host: own}).Apply(t.Context(), f),
			(kernel.Spaces{Host: own}).Remove(t.Context(), f)); err != nil {
			t.Fatal(err)
		}
	})
	loud("delete table inet other")
	loud("flush ruleset")
}

// TestTableChanges: one socket receives the changes of tables with a prefix in other namespaces that have an id, and
// reports which namespace and table it was. It wakes for no other tables, and reports none of its own namespace.
func TestTableChanges(t *testing.T) {
	t.Cleanup(func() { goleak.VerifyNone(t) })
	node, pod, unknown := nettest.NS(t, "node"), nettest.NS(t, "pod"), nettest.NS(t, "unknown")
	host, err := kernel.Dial(node)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = host.Close() })
	port, err := host.Port()
	if err != nil {
		t.Fatal(err)
	}
	id, _, err := host.NamespaceID(t.Context(), pod)
	if err != nil {
		t.Fatal(err)
	}
	h := &heardChanges{}
	ctx, cancel := context.WithCancel(t.Context())
	done, err := watch.TableChanges(ctx, node, "weft_", port, h.add)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cancel(); <-done })
	run := func(c string) { t.Helper(); nettest.Run(t, pod, "nft", c) }
	reported := func(what string) {
		t.Helper()
		h.take(t, what, func(c watch.Change) bool {
			if c.Kind != watch.NftTable || c.NSID != id || c.NftTable != "weft_guard_tap0" {
				t.Errorf("%s: reported %+v", what, c)
			}
			return true
		})
	}
	for _, quiet := range []*netns.NS{node, unknown} {
		nettest.Run(t, quiet, "nft", "add table inet weft_guard_tap1; add set inet weft_guard_tap1 s { type ipv4_addr; }")
		nettest.Run(t, quiet, "nft", "flush ruleset")
	}
	run("add table inet weft; add table inet weft-policy; add table inet other")
	run("add set inet other s { type ipv4_addr; }; add element inet other s { 10.0.0.1 }")
	run("delete table inet weft; delete table inet other; delete table inet weft-policy")
	const table = "add table bridge weft_guard_tap0; add chain bridge weft_guard_tap0 c; " +
		"add set bridge weft_guard_tap0 s { type ipv4_addr; }; add element bridge weft_guard_tap0 s { 10.0.0.1, 10.0.0.2 }; " +
		"add rule bridge weft_guard_tap0 c drop"
	run(table)
	reported("a table is made")
	for _, command := range []string{
		"insert rule bridge weft_guard_tap0 c accept", "add element bridge weft_guard_tap0 s { 10.0.0.3 }",
		"delete element bridge weft_guard_tap0 s { 10.0.0.1 }", "flush chain bridge weft_guard_tap0 c",
		mixed(1, "flush set bridge weft_guard_tap0 s"), mixed(14, "delete table bridge weft_guard_tap0"),
		mixed(40, table), "flush ruleset",
	} {
		run(command)
		reported(command)
	}
	run(mixed(40, table+"; flush ruleset"))
	reported("a table that is made and deleted")
}

// A token is there after each transaction, by whichever program, also one that only adds an element.
func TestCommits(t *testing.T) {
	ns := nettest.NS(t, "commits")
	tokens, err := watch.Commits(t.Context(), ns)
	if err != nil {
		t.Fatal(err)
	}
	for _, command := range []string{
		"add table inet t; add set inet t s { type ipv4_addr; }; add chain inet t c", "add element inet t s { 192.0.2.1 }",
		"add rule inet t c drop", "flush ruleset",
	} {
		nettest.Run(t, ns, "nft", command)
		select {
		case <-tokens:
		case <-time.After(time.Minute):
			t.Errorf("no token after %q", command)
		}
	}
}
