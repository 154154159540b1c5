// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/nettest"
)

// TestMigrationKilled: if the agent of the target node or of the source node is killed at any failpoint of a migration,
// the next ones complete it: all nodes route to the VM.
func TestMigrationKilled(t *testing.T) {
	nettest.EndToEnd(t)
	nettest.Need(t, "vxlan")
	p := newTwo(t, twoPools)
	here, there := p.vmPod(p.nodes[0], "a", false), p.vmPod(p.nodes[1], "b", true)
	peer1, _ := p.pod(p.nodes[0], "peer1")
	peer2, _ := p.pod(p.nodes[1], "peer2")
	all := []*netns.NS{peer1, peer2}
	p.answers(here, all...)
	for _, kill := range []struct{ activating, retiring int }{
		// before, after the record, after its routes, after the addresses, behind; and of three
		{0, -1}, {1, 0}, {2, 1}, {3, 2}, {4, -1},
	} {
		p.heard(there)
		target, source := there.node, here.node
		target.dieAt(kill.activating)
		source.dieAt(kill.retiring)
		here.pause(t)
		there.resume(t)
		there.speaks(t, there.addrs[0])
		target.reborn(true)
		if kill.activating == 0 { // it has written nothing down, and a guest says it more than once
			p.until("the machine is heard by the next agent", func() bool {
				there.speaks(t, there.addrs[0])
				return who(peer2, there.addrs[0]) == there.id
			})
		}
		source.reborn(kill.retiring >= 0)
		p.answers(there, all...)
		here, there = there, here
		time.Sleep(time.Second) // packets from the source node are ignored at first
	}
	here.del(t)
	there.del(t)
	p.moves(0)
}

// pause stops a guest from sending, as at the end of a migration: retransmissions of its connections would show that it
// is back.
func (m *vmPod) pause(t *testing.T) {
	t.Helper()
	nettest.Run(t, m.ns, "nft",
		"add table inet paused; add chain inet paused output { type filter hook output priority 0; policy drop; }")
}

// resume ends a pause, if there is one.
func (m *vmPod) resume(t *testing.T) {
	t.Helper()
	nettest.Run(t, m.ns, "nft", "add table inet paused; delete table inet paused")
}

// dieAt makes the agent kill itself at a failpoint; -1 disables it.
func (w *world) dieAt(step int) {
	w.t.Helper()
	if step < 0 {
		return
	}
	if err := os.WriteFile(w.path("step"), []byte(strconv.Itoa(step)), 0o600); err != nil {
		w.t.Fatal(err)
	}
}

// reborn waits for the end of an agent that kills itself, and starts the next one.
func (w *world) reborn(dies bool) {
	w.t.Helper()
	if !dies {
		return
	}
	if w.alive(true) {
		w.t.Fatalf("the agent was not killed: %s", w.log())
	}
	w.start()
}
