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

// ending is what happens to a pod whose ADD, or DEL, was killed. It gives false when a second ADD of the same ID
// failed.
type ending struct {
	name string
	del  bool // kill DELs, not ADDs
	do   func(n *node, p *pod, killed string) error
	// after ends all of them.
	after func(n *node) error
}

func endings() []ending {
	return []ending{
		{name: "ADD killed, DEL", do: func(n *node, p *pod, _ string) error { return n.del(p) }},
		{name: "ADD killed, namespace gone, DEL", do: func(n *node, p *pod, _ string) error {
			n.end(p)
			return n.del(p)
		}},
		{name: "ADD killed, same ID, DEL", do: again},
		{
			name: "ADD killed, GC only", do: func(n *node, p *pod, _ string) error { n.end(p); return nil },
			after: func(n *node) error { return n.gc(n.keeper) },
		},
		{name: "DEL killed, DEL", del: true, do: func(n *node, p *pod, _ string) error { return n.del(p) }},
		{name: "DEL killed, namespace gone, DEL", del: true, do: func(n *node, p *pod, _ string) error {
			n.end(p)
			return n.del(p)
		}},
	}
}

// again ADDs the same ID a second time. It must succeed; but where nothing remembers the chain as a whole, and its
// first plugin was done when it or a later one was killed, that one answers as the original plugin does: the interface
// exists.
func again(n *node, p *pod, _ string) error {
	done, _ := filepath.Glob("/run/weft/journal/bridge/done/*," + p.id + ",*")
	err := n.add(p)
	if len(done) > 0 && err != nil && strings.Contains(err.Error(), "attached to network") {
		err = nil
	}
	if e := n.del(p); e != nil {
		return e
	}
	return err
}

// row is a line of the table.
type row struct {
	mode, ending string
	calls, hits  int
	failed       []string
	leaks        map[string]int
	list         []string
	killed       map[string]int
	keeper       error
}

// TestLeaks makes the table.
func TestLeaks(t *testing.T) {
	modes := []string{"plugins", "agent, shim killed", "agent killed"}
	if os.Getenv("WEFT_LEAKS_BIN_DIR") != "" {
		modes = modes[:1]
	}
	var rows []row
	for _, mode := range modes {
		for _, e := range endings() {
			t.Run(mode+"/"+e.name, func(t *testing.T) {
				n := newNode(t, mode != "plugins")
				r := n.suffer(e, mode == "agent killed", number("WEFT_LEAKS_N", 25))
				r.mode = mode
				rows = append(rows, r)
				r.judge(t)
			})
		}
	}
	t.Logf("what was left:\n%s", table(rows))
}

// suffer kills calls at random moments, ends each pod, and counts what is left.
func (n *node) suffer(e ending, killAgent bool, calls int) row {
	n.t.Helper()
	before := n.look() // first: links of pods that have gone may live for a moment
	aim := nettest.NewAim(n.duration(e.del))
	r := row{ending: e.name, calls: calls, killed: map[string]int{}}
	for range calls {
		p := n.pod()
		call := n.add
		if e.del {
			if err := n.add(p); err != nil {
				n.t.Fatalf("ADD: %v", err)
			}
			call = n.del
		}
		who := n.strike(func() error { return call(p) }, aim.Moment(), killAgent)
		if aim.Told(who != ""); who != "" {
			r.hits++
			r.killed[who]++
		}
		if err := e.do(n, p, who); err != nil {
			r.failed = append(r.failed, err.Error())
		}
		n.end(p)
	}
	if e.after != nil {
		if err := e.after(n); err != nil {
			r.failed = append(r.failed, err.Error())
		}
	}
	patience := 10 * time.Second
	if os.Getenv("WEFT_LEAKS_BIN_DIR") != "" {
		patience = time.Second
	}
	r.leaks, r.list = n.leaked(before, patience)
	r.keeper = n.check(n.keeper)
	return r
}

// duration is how long a call takes that nobody kills.
func (n *node) duration(del bool) time.Duration {
	n.t.Helper()
	best := time.Minute
	for range 3 {
		p := n.pod()
		start := time.Now()
		if err := n.add(p); err != nil {
			n.t.Fatalf("ADD: %v", err)
		}
		took := time.Since(start)
		start = time.Now()
		if err := n.del(p); err != nil {
			n.t.Fatalf("DEL: %v", err)
		}
		if del {
			took = time.Since(start)
		}
		best = min(best, took)
		n.end(p)
	}
	return best
}

// strike kills a plugin, or the agent, a while into a call, and tells who was killed while the call lived.
func (n *node) strike(call func() error, after time.Duration, agent bool) string {
	n.t.Helper()
	if !agent {
		safe := n.runner.doom(after)
		_ = call()
		return safe()
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = call()
	}()
	who := "agent"
	select {
	case <-done:
		who = ""
	case <-time.After(after):
	}
	n.agent.kill()
	<-done
	n.agent = n.startAgent()
	return who
}

// judge is the law: nothing is left, nothing that belongs to others is lost, and kills have hit.
func (r row) judge(t *testing.T) {
	t.Helper()
	if r.hits < r.calls/4 {
		t.Errorf("only %d of %d kills hit a live call", r.hits, r.calls)
	}
	if os.Getenv("WEFT_LEAKS_BIN_DIR") != "" {
		return
	}
	for _, f := range r.failed {
		t.Errorf("afterwards: %s", f)
	}
	if len(r.list) > 0 {
		t.Errorf("left, %d things: %s", len(r.list), strings.Join(r.list[:min(len(r.list), 30)], "\n"))
	}
	if r.keeper != nil {
		t.Errorf("CHECK of the pod that nobody touched: %v", r.keeper)
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
