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

// TestMachineMovesKilled: wherever the agent of the node dies that a machine has come to, and that of the node that it
// has left, the next ones bring it to its end: all nodes lead to the machine.
func TestMachineMovesKilled(t *testing.T) {
	nettest.Whole(t)
	nettest.Need(t, "vxlan")
	p := newTwo(t, twoPools)
	here, there := p.machine(p.nodes[0], "a", false), p.machine(p.nodes[1], "b", true)
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
		time.Sleep(time.Second) // what comes from where a machine was does not count at once
	}
	here.del(t)
	there.del(t)
	p.moves(0)
}

// pause has a guest say nothing more, as one that leaves: what its connections would send again means that it is back.
func (m *machine) pause(t *testing.T) {
	t.Helper()
	nettest.Run(t, m.ns, "nft",
		"add table inet paused; add chain inet paused output { type filter hook output priority 0; policy drop; }")
}

// resume ends a pause, if there is one.
func (m *machine) resume(t *testing.T) {
	t.Helper()
	nettest.Run(t, m.ns, "nft", "add table inet paused; delete table inet paused")
}

// dieAt has the agent killed at a step of what it does next; -1 is never.
func (w *world) dieAt(step int) {
	w.t.Helper()
	if step < 0 {
		return
	}
	if err := os.WriteFile(w.path("step"), []byte(strconv.Itoa(step)), 0o600); err != nil {
		w.t.Fatal(err)
	}
}

// reborn awaits the end of an agent that is to die, and starts the next one.
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
