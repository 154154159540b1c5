// SPDX-License-Identifier: Apache-2.0

package leaks_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/nettest"
)

// scenario is what happens to a pod whose ADD or DEL was killed.
type scenario struct {
	name string
	del  bool // kill DELs, not ADDs
	do   func(n *node, p *pod, killed string) error
	// after is called after all calls.
	after func(n *node) error
}

func scenarios() []scenario {
	return []scenario{
		{name: "ADD killed, DEL", do: func(n *node, p *pod, _ string) error { return n.del(p) }},
		{name: "ADD killed, namespace gone, DEL", do: func(n *node, p *pod, _ string) error {
			n.removeNetns(p)
			return n.del(p)
		}},
		{name: "ADD killed, same ID, DEL", do: addAgain},
		{
			name: "ADD killed, GC only", do: func(n *node, p *pod, _ string) error { n.removeNetns(p); return nil },
			after: func(n *node) error { return n.gc(n.other) },
		},
		{name: "DEL killed, DEL", del: true, do: func(n *node, p *pod, _ string) error { return n.del(p) }},
		{name: "DEL killed, namespace gone, DEL", del: true, do: func(n *node, p *pod, _ string) error {
			n.removeNetns(p)
			return n.del(p)
		}},
	}
}

// addAgain repeats the ADD of the same ID. It must succeed, with one exception: without a record of the chain, and if
// the first plugin was done when a plugin was killed, that plugin fails as the reference plugin does: the interface
// exists.
func addAgain(n *node, p *pod, _ string) error {
	done, _ := filepath.Glob("/run/weft/journal/bridge/done/*," + p.id + ",*")
	_, _, err := n.attachAsRuntime(p)
	if len(done) > 0 && err != nil && strings.Contains(err.Error(), "attached to network") {
		err = nil
	}
	if e := n.del(p); e != nil {
		return e
	}
	return err
}

// row is a row of the table.
type row struct {
	mode, ending string
	calls, hits  int
	failed       []string
	leaks        map[string]int
	list         []string
	killed       map[string]int
	otherErr     error
}

// TestLeaks runs all scenarios and prints the table.
func TestLeaks(t *testing.T) {
	modes := []string{"plugins", "agent, shim killed", "agent killed"}
	if os.Getenv("WEFT_LEAKS_BIN_DIR") != "" {
		modes = modes[:1]
	}
	var rows []row
	for _, mode := range modes {
		for _, e := range scenarios() {
			t.Run(mode+"/"+e.name, func(t *testing.T) {
				n := newNode(t, mode != "plugins")
				r := n.runScenario(e, mode == "agent killed", number("WEFT_LEAKS_N", 25))
				r.mode = mode
				rows = append(rows, r)
				r.check(t)
			})
		}
	}
	t.Logf("leaks:\n%s", table(rows))
}

// runScenario kills calls at random moments, runs the scenario for each pod, and counts leaks.
func (n *node) runScenario(e scenario, killAgent bool, calls int) row {
	n.t.Helper()
	before := n.takeSnapshot() // first: links of deleted pods may exist for a moment
	aim := nettest.NewAim(n.duration(e.del))
	r := row{ending: e.name, calls: calls, killed: map[string]int{}}
	for range calls {
		p := n.pod()
		call := n.add
		if e.del {
			n.mustAdd(p)
			call = n.del
		}
		who := n.callAndKill(func() error { return call(p) }, aim.Moment(), killAgent)
		if aim.Record(who != ""); who != "" {
			r.hits++
			r.killed[who]++
		}
		if err := e.do(n, p, who); err != nil {
			r.failed = append(r.failed, err.Error())
		}
		n.removeNetns(p)
	}
	if e.after != nil {
		if err := e.after(n); err != nil {
			r.failed = append(r.failed, err.Error())
		}
	}
	patience := time.Minute
	if os.Getenv("WEFT_LEAKS_BIN_DIR") != "" {
		patience = time.Second
	}
	r.leaks, r.list = n.leaks(before, patience)
	r.otherErr = n.check(n.other)
	return r
}

// duration returns the duration of a call that is not killed.
func (n *node) duration(del bool) time.Duration {
	n.t.Helper()
	best := time.Minute
	for range 3 {
		p := n.pod()
		start := time.Now()
		n.mustAdd(p)
		took := time.Since(start)
		start = time.Now()
		if err := n.del(p); err != nil {
			n.t.Fatalf("DEL: %v", err)
		}
		if del {
			took = time.Since(start)
		}
		best = min(best, took)
		n.removeNetns(p)
	}
	return best
}

// callAndKill kills a plugin, or the agent, some time after the start of a call, and returns what was killed during it.
func (n *node) callAndKill(call func() error, after time.Duration, agent bool) string {
	n.t.Helper()
	if !agent {
		safe := n.runner.killAfter(after)
		_ = call()
		return safe()
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = call()
	}()
	victim := "agent"
	select {
	case <-done:
		victim = ""
	case <-time.After(after):
	}
	n.agent.kill()
	<-done
	n.agent = n.startAgent()
	return victim
}

// check checks that nothing is left, nothing of others is lost, and kills have hit.
func (r row) check(t *testing.T) {
	t.Helper()
	if r.hits < r.calls/4 {
		t.Errorf("only %d of %d kills hit a live call", r.hits, r.calls)
	}
	if os.Getenv("WEFT_LEAKS_BIN_DIR") != "" {
		return
	}
	for _, f := range r.failed {
		t.Errorf("after the scenario: %s", f)
	}
	if len(r.list) > 0 {
		t.Errorf("left, %d objects: %s", len(r.list), strings.Join(r.list[:min(len(r.list), 30)], "\n"))
	}
	if r.otherErr != nil {
		t.Errorf("CHECK of the other pod: %v", r.otherErr)
	}
}

func table(rows []row) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%-20s %-34s %5s %5s %6s", "mode", "fault", "calls", "live", "errors")
	columns := append(kinds(), "lost")
	for _, k := range columns {
		fmt.Fprintf(&b, " %8s", k)
	}
	fmt.Fprintln(&b, "  killed")
	for _, r := range rows {
		fmt.Fprintf(&b, "%-20s %-34s %5d %5d %6d", r.mode, r.ending, r.calls, r.hits, len(r.failed))
		for _, k := range columns {
			fmt.Fprintf(&b, " %8d", r.leaks[k])
		}
		var who []string
		for name, times := range r.killed {
			who = append(who, fmt.Sprintf("%s %d", name, times))
		}
		slices.Sort(who)
		fmt.Fprintf(&b, "  %s\n", strings.Join(who, ", "))
	}
	return b.String()
}
