// SPDX-License-Identifier: Apache-2.0

package lab_test

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weft-net/weft/internal/lab"
	"github.com/weft-net/weft/internal/lab/cut"
)

// pings reports whether a node gets an answer from an address.
func pings(t *testing.T, dir, node, to string) bool {
	t.Helper()
	return weft(t, "lab", "exec", "--dir", dir, node, "--", "ping", "-c1", "-W1", to).code == 0
}

// oddPing sends one echo request of a size that no other program uses, as agents send some, too.
func oddPing(t *testing.T, dir, node, to string) (answered bool) {
	t.Helper()
	return weft(t, "lab", "exec", "--dir", dir, node, "--", "ping", "-c1", "-W1", "-s", "999", to).code == 0
}

// countOddPings counts, on a node, the echo requests of oddPing that arrive.
func countOddPings(t *testing.T, dir, node string) (arrived func() int) {
	t.Helper()
	inNode(t, dir, node, "nft", "add table ip odd; add counter ip odd pings; add chain ip odd c { type filter hook prerouting priority -400; }; "+
		"add rule ip odd c icmp type echo-request ip length 1027 counter name pings")
	return func() int {
		t.Helper()
		text := inNode(t, dir, node, "nft", "list", "counter", "ip", "odd", "pings")
		_, after, _ := strings.Cut(text, "packets ")
		n, err := strconv.Atoi(strings.Fields(after + " .")[0])
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		return n
	}
}

// Cuts drop the frames that they name and no others, are found in the status, and are healed.
func TestCut(t *testing.T) {
	dir := labDir(t)
	before := takeSnapshot(t, dir)
	must(t, "lab", "up", "--nodes", "3", "--dir", dir)
	const first, second = "172.18.0.", "172.18.1." // the wires
	expectCuts := func(want ...cut.Cut) {
		t.Helper()
		if d := cmp.Diff(want, status(t, dir).Cuts, cmp.Transformer("", func(in []cut.Cut) map[cut.Cut]bool {
			out := map[cut.Cut]bool{}
			for _, c := range in {
				out[c] = true
			}
			return out
		})); d != "" {
			t.Errorf("cuts in the status: %s", d)
		}
	}

	wait := map[bool]time.Duration{true: 20 * time.Second} // for a ping that should pass
	must(t, "lab", "cut", "--dir", dir, "wire0", "node1", "node2")
	expectCuts(cut.Cut{Wire: "wire0", From: "node1", To: "node2"}, cut.Cut{Wire: "wire0", From: "node2", To: "node1"})
	for to, want := range map[string]bool{first + "2": false, first + "3": true, second + "2": true} {
		// A neighbor that did not answer meanwhile is asked again a second later.
		if got := sometime(wait[want], func() bool { return pings(t, dir, "node1", to) }); got != want {
			t.Errorf("wire0 between node1 and node2 is cut, and a ping of %s from node1 succeeds: %t", to, got)
		}
	}
	text := must(t, "lab", "status", "--dir", dir).stdout
	if !strings.Contains(text, "CUT WIRE") || !strings.Contains(text, "wire0     node1") {
		t.Errorf("the status has no cut:\n%s", text)
	}
	must(t, "lab", "heal", "--dir", dir, "wire0", "node2", "node1")
	if !sometime(20*time.Second, func() bool { return pings(t, dir, "node1", first+"2") }) {
		t.Error("the link is healed and does not pass a ping")
	}

	// One direction: requests of node2 arrive at node1, those of node1 do not arrive at node2.
	must(t, "lab", "cut", "--dir", dir, "wire0", "node1", "node2", "--one-way")
	expectCuts(cut.Cut{Wire: "wire0", From: "node1", To: "node2"})
	for from, want := range map[string]int{"node2": 1, "node1": 0} {
		to := map[string]string{"node1": "node2", "node2": "node1"}[from]
		arrived := countOddPings(t, dir, to)
		if oddPing(t, dir, from, first+to[4:]) {
			t.Errorf("a ping from %s over a link with one direction has an answer", from)
		}
		if got := arrived(); got != want {
			t.Errorf("%d requests of %s arrived at %s, want %d", got, from, to, want)
		}
	}

	must(t, "lab", "cut", "--dir", dir, "wire1")
	expectCuts(cut.Cut{Wire: "wire0", From: "node1", To: "node2"}, cut.Cut{Wire: "wire1"})
	if pings(t, dir, "node2", second+"3") || !sometime(wait[true], func() bool { return pings(t, dir, "node2", first+"3") }) {
		t.Error("wire1 is cut, and passes a ping, or wire0 does not")
	}
	if a := weft(t, "lab", "heal", "--dir", dir, "wire1", "node1"); a.code != 1 ||
		!strings.Contains(a.stderr, "a part of a larger cut: wire1 * -> *") {
		t.Errorf("heal of a part: exit %d, %s", a.code, a.stderr)
	}
	if a := weft(t, "lab", "cut", "--dir", dir, "wire9"); a.code != 1 ||
		!strings.Contains(a.stderr, `wire or node "wire9" not found`) || !strings.Contains(a.stderr, "wire1") {
		t.Errorf("cut of an unknown wire: exit %d, %s", a.code, a.stderr)
	}
	must(t, "lab", "exec", "--dir", dir, "node1", "--", "true")
	must(t, "lab", "heal", "--dir", dir, "--all")
	expectCuts()
	allReach(t, dir, 3*2*6)
	must(t, "lab", "down", "--dir", dir)
	before.expectSame(t, dir)
}

// All labs of the host are listed, with their age, nodes and phase, also one whose processes were killed.
func TestList(t *testing.T) {
	a, b := labDir(t), labDir(t)
	must(t, "lab", "up", "--nodes", "1", "--name", "first", "--dir", a)
	must(t, "lab", "up", "--nodes", "2", "--name", "second", "--dir", b)
	listed := func(dir string) (lab.Listed, bool) {
		t.Helper()
		for _, l := range decode[[]lab.Listed](t, must(t, "lab", "list", "-o", "json").stdout) {
			if l.Dir == dir {
				return l, true
			}
		}
		return lab.Listed{}, false
	}
	for dir, want := range map[string]lab.Listed{a: {Name: "first", Nodes: 1}, b: {Name: "second", Nodes: 2}} {
		l, _ := listed(dir)
		if l.Name != want.Name || l.Nodes != want.Nodes || l.Phase != "up" || time.Since(l.Created) > 10*time.Minute {
			t.Errorf("%s is listed as %+v", dir, l)
		}
	}
	killAgent(t, b, "node2")
	within(t, 10*waitUnit, "the lab is degraded", func() bool { l, _ := listed(b); return l.Phase == "degraded" })
	if text := must(t, "lab", "list").stdout; !strings.Contains(text, "degraded  "+b) || !strings.Contains(text, "AGE") {
		t.Errorf("list prints\n%s", text)
	}
	// An up that was killed: its marker is there, and no command has the lock.
	cmd := command(t, "lab", "down", "--dir", a)
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	if l, ok := listed(a); ok {
		t.Errorf("a lab that is down is listed: %+v", l)
	}
	up := command(t, "lab", "up", "--nodes", "2", "--name", "first", "--dir", a)
	if err := up.Start(); err != nil {
		t.Fatal(err)
	}
	within(t, 20*waitUnit, "a first node", func() bool {
		_, err := os.Stat(filepath.Join(a, "nodes", "node1", "agent.pid"))
		return err == nil
	})
	_ = up.Process.Kill()
	_ = up.Wait()
	if l, _ := listed(a); l.Phase != "incomplete" && l.Phase != "up" && l.Phase != "degraded" {
		t.Errorf("a killed up is listed as %+v", l)
	}
}
