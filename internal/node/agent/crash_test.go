// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/containernetworking/cni/libcni"

	"github.com/weft-net/weft/internal/nettest"
)

func TestAgentAway(t *testing.T) {
	w := newWorld(t)
	w.start()
	before := w.host()
	list, ns := w.list("1.1.0", w.networks()["bridge"]), nettest.NS(t, "pod")
	if _, err := w.add(list, "c1", ns); err != nil {
		t.Fatal(err)
	}
	w.kill()
	if _, err := w.add(list, "c2", ns); code(err) != 11 {
		t.Errorf("ADD without agent: code %d: %v", code(err), err)
	}
	if err := w.cni.GetStatusNetworkList(w.ctx(), list); code(err) != 50 {
		t.Errorf("STATUS without agent: code %d, %v", code(err), err)
	}
	if err := w.del(list, "c1", ns); err != nil || w.queued() != 1 {
		t.Errorf("DEL without agent: %v, %d queued", err, w.queued())
	}
	w.start()
	if diff := w.settled(before); diff != "" {
		t.Errorf("the queued DEL was not done: %s", diff)
	}
}

func TestStoppedAgentIsAway(t *testing.T) {
	nettest.EndToEnd(t)
	w := newWorld(t)
	w.start()
	before := w.host()
	list, ns := w.list("1.0.0", w.networks()["ptp"]), nettest.NS(t, "pod")
	w.frozen = true
	_ = w.agent.Process.Signal(syscall.SIGSTOP)
	if _, err := w.add(list, "c1", ns); code(err) != 11 {
		t.Errorf("ADD: code %d, %v", code(err), err)
	}
	if err := w.del(list, "c1", ns); err != nil || w.queued() != 1 {
		t.Errorf("DEL: %v, %d queued", err, w.queued())
	}
	_ = w.agent.Process.Signal(syscall.SIGCONT)
	w.frozen = false
	for range 200 {
		if w.queued() == 0 {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if diff := w.settled(before); diff != "" {
		t.Errorf("left behind: %s", diff)
	}
}

func TestRestartLeavesPods(t *testing.T) {
	w := newWorld(t)
	w.start()
	before := w.host()
	for name, network := range w.networks() {
		list, ns := w.list("1.0.0", network), nettest.NS(t, "pod")
		r, err := w.add(list, "c1", ns)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		w.stop()
		nettest.Run(t, ns, "ping", "-c1", "-W20", r.IPs[0].Gateway.String())
		w.start()
		w.kill()
		w.start()
		if err := w.check(list, "c1", ns); err != nil {
			t.Errorf("%s: CHECK after the restart: %v", name, err)
		}
		_ = nettest.Run(t, ns, "ip", "link")
		rt := runtimeConf("c1", ns)
		rt.NetNS = "/gone"
		if err := w.cni.DelNetworkList(w.ctx(), list, rt); err != nil {
			t.Errorf("%s: DEL without namespace: %v", name, err)
		}
		if diff := w.settled(before); diff != "" {
			t.Errorf("%s: left behind: %s", name, diff)
		}
	}
}

func TestTwoAgents(t *testing.T) {
	w := newWorld(t)
	w.start()
	agent := filepath.Join(os.Getenv(binVar), "weft-agent")
	for name, c := range map[string]struct {
		args []string
		says string
	}{
		"state": {[]string{"--state-dir", w.path("state"), "--socket", w.path("other.sock")}, "another agent uses it"},
		"namespace": {
			[]string{"--state-dir", w.path("other"), "--socket", w.path("other.sock")},
			"network namespace: another agent serves it (process ",
		},
		"socket": {[]string{"--state-dir", w.path("other"), "--socket", w.socket()}, "another agent listens there"},
		"store": {
			[]string{"--state-dir", w.path("third"), "--socket", w.path("third.sock"), "--store-dir", w.path("none")},
			"name a directory of Kubernetes manifests",
		},
		"no state": {[]string{"--state-dir", "/proc/none", "--socket", w.path("other.sock")}, "/proc/none"},
		"long socket": {
			[]string{"--state-dir", w.path("other"), "--socket", "/" + strings.Repeat("x", 200)}, "at most 102 bytes",
		},
	} {
		cmd := exec.Command(agent, append([]string{"agent"}, c.args...)...)
		var said bytes.Buffer
		cmd.Stdout, cmd.Stderr = &said, &said
		start := cmd.Start
		if name == "namespace" { // the others are in one of their own
			start = func() error { return w.node.Do(cmd.Start) }
		}
		err := start()
		if err == nil {
			err = cmd.Wait()
		}
		out := said.String()
		if err == nil || !strings.Contains(out, c.says) || !strings.Contains(out, "hint: ") ||
			strings.Contains(out, "ready") {
			t.Errorf("%s: %v: %s", name, err, out)
		}
	}
}

// crasher kills the agent repeatedly and checks what remains.
type crasher struct {
	*world
	list   *libcni.NetworkConfigList
	before string
	shot   chan time.Time // when a kill came that was to come later
	rounds int
	kills  int // how many kills there were
	live   int // how many of them hit a call before its answer
}

// cycle performs an ADD and a DEL like a runtime, and may kill the agent in one of them: a failed ADD is followed by
// its DEL, and the agent is restarted before or after the DEL. It reports whether the agent was killed.
func (c *crasher) cycle(killAdd, killDel func()) bool {
	c.t.Helper()
	c.rounds++
	id := fmt.Sprint("c", c.rounds)
	ns := nettest.NS(c.t, "pod-"+id)
	killAdd()
	_, addErr := c.add(c.list, id, ns)
	died := !c.alive(addErr != nil)
	if !died && addErr != nil {
		c.t.Errorf("%s: ADD: %v", id, addErr)
	}
	if died && c.rounds%2 == 0 {
		c.start()
	}
	if !died {
		killDel()
	}
	start := time.Now()
	if err := c.del(c.list, id, ns); err != nil {
		c.t.Errorf("%s: DEL: %v", id, err)
	}
	queued := !died && c.queued() > 0
	if c.shot != nil { // wherever it hits
		queued = queued && (<-c.shot).After(start)
	}
	live := addErr != nil || queued
	if c.agent == nil || !c.alive(c.queued() > 0 || c.shot != nil && !died) {
		died = true
		c.start()
	}
	if died {
		c.kills++
	}
	if live {
		c.live++
	}
	_ = os.Remove(c.path("step"))
	diff := c.settled(c.before)
	if diff != "" && !died && !c.alive(false) { // it died after the response, later than the test waits
		died = true
		c.kills++
		c.start()
		diff = c.settled(c.before)
	}
	if diff != "" {
		c.t.Fatalf("%s: left behind: %s", id, diff)
	}
	return died
}

func newCrasher(t *testing.T, network string) *crasher {
	w := newWorld(t)
	w.start()
	return &crasher{world: w, list: w.list("1.0.0", w.routedOr(network)), before: w.host()}
}

// arm makes the agent kill itself at failpoint k from now.
func (c *crasher) arm(k int) func() {
	return func() {
		if err := os.WriteFile(c.path("step"), []byte(strconv.Itoa(k)), 0o600); err != nil {
			c.t.Fatal(err)
		}
	}
}

// disarm disables the failpoint.
func (c *crasher) disarm() func() { return func() { _ = os.Remove(c.path("step")) } }

func TestKilledAtEveryStep(t *testing.T) {
	nettest.EndToEnd(t)
	for _, network := range []string{"ptp", "bridge", "chain", "late", "guarded", "routed"} {
		t.Run(network, func(t *testing.T) {
			c := newCrasher(t, network)
			disarm := c.disarm()
			adds, dels := 0, 0
			for c.cycle(c.arm(adds), disarm) {
				adds++
			}
			for c.cycle(disarm, c.arm(dels)) {
				dels++
			}
			c.stop()
			if n := c.records(); n != 0 || adds < 3 || dels < 2 {
				t.Errorf("%d records left", n)
			}
			t.Logf("%s: killed at %d steps of ADD and %d of DEL, %d before the answer; the host was as before each time",
				network, adds, dels, c.live)
		})
	}
}

func TestKilledAtRandomMoments(t *testing.T) {
	nettest.EndToEnd(t)
	for _, network := range []string{"ptp", "bridge", "chain", "guarded"} {
		t.Run(network, func(t *testing.T) {
			newCrasher(t, network).atRandom(67, 6*time.Millisecond, rand.New(rand.NewPCG(1, 2)))
		})
	}
}

// atRandom kills the agent n times at random moments. The moments are chosen within about the time that a call takes on
// this host: a kill outside a call makes the window smaller, one within a call larger.
func (c *crasher) atRandom(kills int, window time.Duration, random *rand.Rand) {
	c.t.Helper()
	hits := 0
	aim := func() {
		if c.live > hits {
			window = min(window*5/4, 20*time.Millisecond)
		} else {
			window = max(window*4/5, 500*time.Microsecond)
		}
		hits = c.live
	}
	later := func() {
		agent, shot := c.agent, make(chan time.Time, 1)
		c.shot = shot
		time.AfterFunc(time.Duration(random.Int64N(int64(window))), func() {
			shot <- time.Now()
			_ = agent.Process.Kill()
		})
	}
	for c.kills < kills && c.rounds < 3*kills {
		if c.rounds%2 == 0 {
			c.cycle(later, func() {})
		} else {
			c.cycle(func() {}, later)
		}
		aim()
	}
	c.t.Logf("%d kills, %d hit a live call; the host was as before each time", c.kills, c.live)
	if c.live*4 < c.kills || c.kills < kills {
		c.t.Errorf("%d kills, %d hit a live call", c.kills, c.live)
	}
}
