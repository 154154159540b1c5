// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"testing"
	"time"

	"github.com/weft-net/weft/internal/nettest"
)

// TestKilledWhileRepairing: an agent that is killed at any step of a repair leaves nothing that its next start does not repair, and
// nothing of the pod that a DEL does not find.
func TestKilledWhileRepairing(t *testing.T) {
	for _, network := range []string{"bridge", "routed"} {
		t.Run(network, func(t *testing.T) {
			c := newCrasher(t, network)
			ns := nettest.NS(t, "pod")
			r, err := c.add(c.list, "c1", ns)
			if err != nil {
				t.Fatal(err)
			}
			host := r.Interfaces[0].Name
			if network == "bridge" {
				host = r.Interfaces[1].Name
			}
			whole := func(what string) {
				t.Helper()
				for limit := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
					err := c.check(c.list, "c1", ns)
					if err == nil {
						return
					}
					if time.Now().After(limit) {
						t.Fatalf("%s: not repaired: %v\n%s", what, err, c.log())
					}
				}
			}
			killed := 0
			for k := range 4 {
				whole("before")
				c.arm(k)()
				nettest.Run(t, c.node, "ip", "link", "set", host, "down")
				_, _ = nettest.Try(c.node, "ip", "route", "flush", "proto", "119")
				if k == 0 { // a second time it would be the pod's will
					nettest.Run(t, ns, "ip", "addr", "flush", "dev", "eth0")
				}
				died := false
				for limit := time.Now().Add(10 * time.Second); !died && time.Now().Before(limit); time.Sleep(20 * time.Millisecond) {
					died = !c.alive(false)
					if !died && c.check(c.list, "c1", ns) == nil {
						break
					}
				}
				c.disarm()()
				if died {
					killed++
					c.start()
				}
				if k == 0 && !died {
					t.Fatalf("the agent repairs nothing\n%s", c.log())
				}
			}
			whole("after the last kill")
			if err := c.del(c.list, "c1", ns); err != nil {
				t.Error(err)
			}
			if diff := c.settled(c.before); diff != "" {
				t.Errorf("left behind: %s", diff)
			}
			c.stop()
			t.Logf("killed %d times", killed)
		})
	}
}
