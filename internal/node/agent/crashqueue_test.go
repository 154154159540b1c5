// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/cni/wire"
	"github.com/weft-net/weft/internal/nettest"
)

// TestKilledWhileDoingTheQueue: an agent that is killed at each failpoint of a queued DEL leaves it to the next one,
// which completes it.
func TestKilledWhileDoingTheQueue(t *testing.T) {
	nettest.EndToEnd(t)
	for _, network := range []string{"bridge", "routed"} {
		t.Run(network, func(t *testing.T) {
			c := newCrasher(t, network)
			steps := c.queuedDel("q")
			for k := range steps {
				c.queuedAndKilled(k)
			}
			c.stop()
			if n := c.records(); n != 0 {
				t.Errorf("%d records left", n)
			}
			log, err := os.ReadFile(c.path("agent.log"))
			if err != nil {
				t.Fatal(err)
			}
			var at []string
			for _, m := range regexp.MustCompile(`killed at failpoint: (.*)`).FindAllStringSubmatch(string(log), -1) {
				at = append(at, m[1])
			}
			for _, step := range []string{"before queued DEL", "before the entry goes", "after the entry went"} {
				if !slices.Contains(at, step) {
					t.Errorf("not killed %s, but at %q", step, at)
				}
			}
			t.Logf("killed at %d of %d steps; the host was as before each time", len(at), steps)
		})
	}
}

// manySteps is more than the failpoints of a DEL.
const manySteps = 1000

// queuedDel makes an agent execute a queued DEL, and returns how many failpoints that passed.
func (c *crasher) queuedDel(id string) (steps int) {
	c.t.Helper()
	c.arrives(id, manySteps)
	if diff := c.settled(c.before); diff != "" {
		c.t.Fatalf("a queued DEL leaves behind: %s", diff)
	}
	for was := -1; was != steps; { // some things are released after the host is as before
		was = steps
		time.Sleep(2 * time.Second)
		if b, err := os.ReadFile(c.path("step")); err != nil {
			c.t.Fatal(err)
		} else if _, err := fmt.Sscan(string(b), &steps); err != nil {
			c.t.Fatal(err)
		}
	}
	c.disarm()()
	return manySteps - steps
}

// queuedAndKilled makes an agent execute a queued DEL and kill itself at failpoint k.
func (c *crasher) queuedAndKilled(k int) {
	c.t.Helper()
	c.arrives(fmt.Sprint("q", k), k)
	if c.alive(true) { // the one that was counted may have had a repair to do as well
		c.disarm()()
		c.t.Logf("the agent was not killed at step %d", k)
	} else {
		c.start()
	}
	if diff := c.settled(c.before); diff != "" {
		c.t.Fatalf("killed at step %d of a queued DEL, left behind: %s", k, diff)
	}
}

// arrives attaches a pod and queues its DEL for an agent that is armed for failpoint k.
func (c *crasher) arrives(id string, k int) {
	c.t.Helper()
	ns := nettest.NS(c.t, "pod-"+id)
	if _, err := c.add(c.list, id, ns); err != nil {
		c.t.Fatal(err)
	}
	c.kill()
	if err := c.del(c.list, id, ns); err != nil {
		c.t.Fatalf("DEL without agent: %v", err)
	}
	entries, err := filepath.Glob(filepath.Join(wire.QueueDir(c.socket()), "*"+wire.QueueSuffix))
	if err != nil || len(entries) != 1 {
		c.t.Fatalf("queued: %q, %v", entries, err)
	}
	aside := c.path("entry")
	if err := os.Rename(entries[0], aside); err != nil {
		c.t.Fatal(err)
	}
	c.start()
	c.arm(k)()
	if err := os.Rename(aside, entries[0]); err != nil {
		c.t.Fatal(err)
	}
}
