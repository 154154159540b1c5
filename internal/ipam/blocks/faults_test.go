// SPDX-License-Identifier: Apache-2.0

package blocks

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/ipam/blockjournal"
	"github.com/weft-net/weft/internal/nettest"
)

// poolOf30 has 30 addresses in four blocks.
const poolOf30 = "apiVersion: weft.dev/v1alpha1\nkind: AddressPool\nmetadata: {name: whereabouts}\nspec:\n  regions: [{cidr: 10.0.0.0/27, blockSize: 29}]\n"

// tale is two nodes around that pool; node a meets its fault at a certain step or request.
type tale struct {
	t     *testing.T
	a, b  *node
	now   time.Time
	left  int // steps until a is killed
	ended bool
}

func newTale(t *testing.T, k int) *tale {
	_, path := cluster(t, map[string]string{"pool.yaml": poolOf30})
	w := &tale{t: t, now: time.Unix(1e9, 0), left: k}
	calm := func(c *Config) {
		c.Now = func() time.Time { return w.now }
		c.After = func(time.Duration) <-chan time.Time { ch := make(chan time.Time, 1); ch <- w.now; return ch }
	}
	w.a = join(t, path, "a", func(c *Config) {
		calm(c)
		c.Failpoint = func(string) error {
			if w.left--; w.left <= 0 {
				w.ended = true
				return errCrash
			}
			return nil
		}
	})
	w.b = join(t, path, "b", calm)
	return w
}

func (w *tale) reconcile(n *node) {
	n.engine.state.synced = false // as after a new watch
	for _, p := range n.engine.state.pools {
		p.stale, p.noFreeBlock = true, false
		for _, b := range p.order {
			b.stale = true
		}
	}
	_ = n.engine.reconciler.reconcile(context.Background())
}

// run runs the steps until node a is killed.
func (w *tale) run() {
	conf := rangeConf1("10.0.0.0/27")
	a, b := w.a, w.b
	specific := func(n *node, id, ip string) func() {
		return func() { _, _ = n.add(conf, id, [2]string{"IP", ip}) }
	}
	add := func(n *node, id string) func() { return func() { _, _ = n.add(conf, id) } }
	del := func(n *node, id string) func() {
		return func() {
			if _, has := n.ledger[key(id)]; has {
				n.del(id)
			}
		}
	}
	reconcile := func(n *node) func() { return func() { w.reconcile(n) } }
	later := func(s int) func() { return func() { w.now = w.now.Add(time.Duration(s) * time.Second) } }
	for _, f := range []func(){
		add(a, "a1"), reconcile(a), add(b, "b1"), reconcile(b), specific(a, "a3", "10.0.0.13"),
		specific(a, "a2", "10.0.0.21"),
		reconcile(b), reconcile(b),
		specific(a, "a2", "10.0.0.21"), specific(b, "b2", "10.0.0.5"), reconcile(a),
		specific(b, "b2", "10.0.0.5"), reconcile(a),
		del(a, "a2"), later(20), reconcile(a),
		reconcile(a), reconcile(b), del(a, "a3"), del(b, "b2"), later(20), reconcile(b), reconcile(b),
		reconcile(a), later(70), reconcile(a),
		later(70),
		reconcile(a), del(a, "a1"), later(70), reconcile(a), reconcile(a),
		later(70), reconcile(a), later(800), reconcile(a), reconcile(a), later(100), reconcile(a),
	} {
		f()
		if w.ended {
			return
		}
	}
}

// claimLent takes all that a node can get.
func (w *tale) claimLent(n *node, name string) {
	for i := range 40 {
		if _, err := n.add(rangeConf1("10.0.0.0/27"), fmt.Sprint(name, i)); err != nil {
			return
		}
	}
}

// TestAnyFaultAtAnyStep: killed between any two steps, or cut off there: no address twice, and in the end none lost.
func TestAnyFaultAtAnyStep(t *testing.T) {
	nettest.EndToEnd(t)
	for _, fault := range []string{
		"killed", "killed, its last words late", "killed, its journal lost", "killed, its journal lost, its last words late",
		"answers lost, then killed",
	} {
		t.Run(fault, func(t *testing.T) {
			hits := 0
			stride := 1
			if fault == "answers lost, then killed" {
				stride = 3 // what is not answered does not count as a step
			}
			for k := 1; ; k += stride {
				w := newTale(t, k)
				switch fault {
				case "killed, its last words late", "killed, its journal lost, its last words late":
					w.late()
				case "answers lost, then killed":
					w.deaf()
				}
				w.run()
				if !w.ended && stride == 1 || k > 60 {
					break
				}
				hits++
				w.left = 1 << 30
				if strings.Contains(fault, "journal lost") {
					_ = os.Remove(blockjournal.Path(w.a.config.Dir))
				}
				w.a.start()
				w.aftermath()
				if t.Failed() {
					t.Fatalf("fault at step %d", k)
				}
			}
			if hits < 20 {
				t.Errorf("the tale has only %d steps", hits)
			}
			t.Logf("%d steps", hits)
		})
	}
}

// late holds back what node a writes shortly before its end.
func (w *tale) late() {
	step := w.a.config.Failpoint
	w.a.engine.cfg.Failpoint = func(name string) error {
		w.a.line.late = w.left <= 2
		return step(name)
	}
}

// deaf loses the answers of what node a writes shortly before its end.
func (w *tale) deaf() {
	step := w.a.config.Failpoint
	w.a.engine.cfg.Failpoint = func(name string) error {
		w.a.line.set(false, w.left <= 4)
		return step(name)
	}
}

// aftermath: node a continues alone, then everything is connected again.
func (w *tale) aftermath() {
	w.a.line.late = false
	w.a.line.set(true, false)
	w.reconcile(w.b)
	w.claimLent(w.a, "alone")
	w.claimLent(w.b, "beside")
	checkOnce(w.t, w.a, w.b)
	w.a.line.set(false, false)
	w.reconcile(w.a)
	w.claimLent(w.a, "together")
	w.a.line.deliver()
	w.reconcile(w.b)
	w.claimLent(w.b, "later")
	for range 4 {
		w.now = w.now.Add(20 * time.Second)
		w.reconcile(w.a)
		w.reconcile(w.b)
	}
	w.claimLent(w.a, "at last")
	w.claimLent(w.b, "at last too")
	for range 3 {
		w.reconcile(w.a)
		w.reconcile(w.b)
		w.claimLent(w.a, "more")
		w.claimLent(w.b, "more")
	}
	checkOnce(w.t, w.a, w.b)
	if n := len(w.a.ledger) + len(w.b.ledger); n != 30 {
		w.t.Errorf("%d of 30 addresses can be used: %d by a, %d by b", n, len(w.a.ledger), len(w.b.ledger))
	}
}
