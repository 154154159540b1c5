// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/nettest"
)

// TestFirewalldIsRepaired reloads and restarts a real firewalld that accepts a pod's traffic: a reload drops the
// runtime configuration, and the agent adds it again.
func TestFirewalldIsRepaired(t *testing.T) {
	nettest.EndToEnd(t)
	w := newWorld(t)
	fw := nettest.Firewalld(t, w.node)
	w.start()
	list := w.list("1.1.0", fmt.Sprintf(`{"plugins":[%s,{"type":"firewall"}]}`, w.networks()["bridge"]))
	const pods = 5
	var want []string
	var spaces []*netns.NS
	for i := range pods {
		spaces = append(spaces, nettest.NS(t, fmt.Sprintf("pod%d", i)))
		r, err := w.add(list, fmt.Sprintf("c%d", i), spaces[i])
		if err != nil {
			t.Fatalf("ADD: %v\n%s", err, w.log())
		}
		want = append(want, r.IPs[0].Address.IP.String()+"/32")
	}
	sources := func() string { return fw.Cmd("--zone=trusted", "--list-sources") }
	if got := sources(); got != strings.Join(want, " ") {
		t.Fatalf("sources %q, want %q\n%s", got, want, w.log())
	}
	all := func() bool { return len(strings.Fields(sources())) == pods }
	w.repaired("reload", func() { fw.Cmd("--reload") }, all)
	w.repaired("complete reload", func() { fw.Cmd("--complete-reload") }, all)
	fw.Stop()
	fw.Start()
	w.within(20*time.Second, "restart", all)
	for i, ns := range spaces {
		if err := w.del(list, fmt.Sprintf("c%d", i), ns); err != nil {
			t.Error(err)
		}
	}
	if got := sources(); got != "" {
		t.Errorf("sources after DEL: %q", got)
	}
}

// TestFlushedPoliciesAreRepaired flushes every table, and deletes single ones, while policies isolate pods.
func TestFlushedPoliciesAreRepaired(t *testing.T) {
	nettest.EndToEnd(t)
	w := newWorld(t)
	w.start()
	list := w.list("1.1.0", w.networks()["guarded"])
	for i := range 3 {
		if _, err := w.add(list, fmt.Sprintf("c%d", i), nettest.NS(t, fmt.Sprintf("pod%d", i))); err != nil {
			t.Fatalf("ADD: %v\n%s", err, w.log())
		}
	}
	// Elements come back in another order.
	rules := func() string {
		words := strings.Fields(
			strings.NewReplacer(",", " ", "elements = {", " ", "}",
				" ").Replace(nettest.Run(t, w.node, "nft", "list", "ruleset")),
		)
		slices.Sort(words)
		return strings.Join(words, " ")
	}
	before := rules()
	for _, damage := range []string{
		"flush ruleset", "delete table inet weft_firewall", "delete table bridge weft_firewall",
		"flush chain bridge weft_firewall forward",
	} {
		w.repaired(damage, func() { nettest.Run(t, w.node, "nft", damage) }, func() bool { return rules() == before })
	}
}

// repaired flushes rules and expects their repair within a second; on a busy host, at the fortieth attempt.
func (w *world) repaired(what string, damage func(), whole func() bool) {
	w.t.Helper()
	for range 40 {
		damage()
		if w.within(20*time.Second, what, whole) < time.Second {
			return
		}
	}
	w.t.Errorf("%s: not repaired within a second\n%s", what, w.log())
}

// within waits for the repair and returns its duration. A check takes long on a busy host: the duration ends when the
// successful check began.
func (w *world) within(limit time.Duration, what string, whole func() bool) time.Duration {
	w.t.Helper()
	begin := time.Now()
	for {
		took := time.Since(begin)
		if whole() {
			w.t.Logf("%s: repaired within %v", what, took.Round(time.Millisecond))
			return took
		}
		if took > limit {
			w.t.Fatalf("%s: not repaired after %v\n%s", what, limit, w.log())
		}
	}
}
