// SPDX-License-Identifier: Apache-2.0

package lab_test

import (
	"math/rand/v2"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/nettest"
	"github.com/weft-net/weft/internal/sandbox/process"
)

const waitUnit = 3 * time.Second // on a busy host

// A lab whose up is killed at any moment is removed by the next down or up.
func TestKilledUp(t *testing.T) {
	dir := labDir(t)
	before := takeSnapshot(t, dir)
	from := examples2(t)
	args := []string{"lab", "up", "--nodes", "2", "--from", from, "--dir", dir}
	whole := time.Minute
	for range 3 {
		begun := time.Now()
		must(t, args...)
		whole = min(whole, time.Since(begun))
		must(t, "lab", "down", "--dir", dir)
	}

	const rounds = 24
	hit, aim := 0, nettest.NewAim(whole)
	for i := range rounds {
		hit += killed(t, aim, args...)
		if i%4 == 3 {
			// The next up removes what the killed one left, unless that had finished.
			if a := weft(t, args...); a.code != 0 && !strings.Contains(a.stderr, "is running in "+dir+" already") {
				t.Fatalf("round %d: up: %s", i, a.stderr)
			}
			allReach(t, dir, 4*3*6)
		}
		must(t, "lab", "down", "--dir", dir)
		before.expectSame(t, dir)
		if t.Failed() {
			t.Fatalf("round %d", i)
		}
	}
	t.Logf("%d of %d kills hit a live up (one takes %s)", hit, rounds, whole.Round(time.Millisecond))
	if hit < rounds/4 {
		t.Errorf("only %d of %d kills hit a live up", hit, rounds)
	}
}

// If a process of a node is killed during up, up fails immediately and names it; nothing is left.
func TestKilledHelpers(t *testing.T) {
	dir := labDir(t)
	before := takeSnapshot(t, dir)
	from := examples2(t)
	dice := rand.New(rand.NewPCG(1, uint64(time.Now().UnixNano())))
	const rounds = 12
	hit := 0
	for i := range rounds {
		cmd := command(t, "lab", "up", "--nodes", "2", "--from", from, "--dir", dir)
		var stderr strings.Builder
		cmd.Stderr = &stderr
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- cmd.Wait() }()
		role := []string{"agent", "sandbox"}[i%2]
		var id process.ID
		within(t, time.Minute, "pid file of the "+role, func() bool {
			return process.ReadJSON(filepath.Join(dir, "nodes", "node2", role+".pid"), &id) == nil
		})
		time.Sleep(time.Duration(dice.Int64N(int64(60 * time.Millisecond))))
		_ = id.Signal(syscall.SIGKILL)
		begun := time.Now()
		if err := <-ended; err != nil {
			hit++
			if took := time.Since(begun); took > 30*time.Second {
				t.Errorf("up took another %s", took)
			}
			if !strings.Contains(stderr.String(), "node node2: "+role+" exited (signal: killed)") {
				t.Errorf("up prints:\n%s", stderr.String())
			}
			before.expectSame(t, dir)
		}
		must(t, "lab", "down", "--dir", dir)
		before.expectSame(t, dir)
	}
	t.Logf("%d of %d kills hit a live up", hit, rounds)
	if hit < rounds/4 {
		t.Errorf("only %d of %d kills hit a live up", hit, rounds)
	}
}

// If down is killed, the next one finishes.
func TestKilledDown(t *testing.T) {
	dir := labDir(t)
	before := takeSnapshot(t, dir)
	hit := 0
	const rounds = 6
	for i := range rounds {
		must(t, "lab", "up", "--nodes", "2", "--from", examples2(t), "--dir", dir)
		cmd := command(t, "lab", "down", "--dir", dir)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Duration(i*i) * 2 * time.Millisecond)
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if !cmd.ProcessState.Exited() {
			hit++
		}
		must(t, "lab", "down", "--dir", dir)
		before.expectSame(t, dir)
	}
	t.Logf("%d of %d kills hit a live down", hit, rounds)
	if hit < 2 { // the first two kills are at 0 and 2 ms
		t.Errorf("only %d of %d kills hit a live down", hit, rounds)
	}
}

// A cut that is killed at any moment is completed by the next cut, or undone by heal.
func TestKilledCut(t *testing.T) {
	dir := labDir(t)
	before := takeSnapshot(t, dir)
	must(t, "lab", "up", "--nodes", "2", "--dir", dir)
	begun := time.Now()
	must(t, "lab", "cut", "--dir", dir, "wire1")
	whole := time.Since(begun)
	must(t, "lab", "heal", "--dir", dir, "--all")
	const rounds = 12
	hit, aim := 0, nettest.NewAim(whole)
	for i := range rounds {
		hit += killed(t, aim, "lab", "cut", "--dir", dir, "wire0", "node1", "node2")
		if i%2 == 0 {
			must(t, "lab", "cut", "--dir", dir, "wire0", "node1", "node2")
			if len(status(t, dir).Cuts) != 2 || pings(t, dir, "node1", "172.18.0.2") {
				t.Fatalf("round %d: the link is not cut", i)
			}
		}
		hit += killed(t, aim, "lab", "heal", "--dir", dir, "--all")
		must(t, "lab", "heal", "--dir", dir, "--all")
		if len(status(t, dir).Cuts) != 0 || !sometime(20*time.Second, func() bool { return pings(t, dir, "node1", "172.18.0.2") }) {
			t.Fatalf("round %d: the link is not healed", i)
		}
	}
	t.Logf("%d of %d kills hit a live command (one takes %s)", hit, 2*rounds, whole.Round(time.Millisecond))
	if hit < rounds/2 {
		t.Errorf("only %d of %d kills hit a live command", hit, 2*rounds)
	}
	killed(t, aim, "lab", "cut", "--dir", dir, "wire0")
	must(t, "lab", "down", "--dir", dir)
	before.expectSame(t, dir)
}

// killed starts weft and kills it a while later. It returns 1 if it was alive then, otherwise 0.
func killed(t *testing.T, aim *nettest.Aim, args ...string) int {
	t.Helper()
	cmd := command(t, args...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	time.Sleep(aim.Moment())
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	live := !cmd.ProcessState.Exited()
	aim.Record(live)
	if live {
		return 1
	}
	return 0
}

// An apply or a delete that is killed at any moment is completed by the next one, and down removes everything.
func TestKilledApply(t *testing.T) {
	dir := labDir(t)
	before := takeSnapshot(t, dir)
	must(t, "lab", "up", "--nodes", "2", "--dir", dir)
	manifest := write(t, "all.yaml", sleeper("one", "")+"---\n"+deployment("front", 3, "1000"))
	begun := time.Now()
	must(t, "lab", "apply", "--dir", dir, "-f", manifest, "--wait", "0")
	whole := 2 * time.Since(begun)
	must(t, "lab", "delete", "--dir", dir, "-f", manifest)
	const rounds = 6
	hit, aim := 0, nettest.NewAim(whole)
	for i := range rounds {
		hit += killed(t, aim, "lab", "apply", "--dir", dir, "-f", manifest)
		must(t, "lab", "apply", "--dir", dir, "-f", manifest)
		if st := status(t, dir); len(st.Pods) != 4 || len(st.Problems) != 0 {
			t.Fatalf("round %d: %+v, %q", i, st.Pods, st.Problems)
		}
		hit += killed(t, aim, "lab", "delete", "--dir", dir, "-f", manifest)
		must(t, "lab", "delete", "--dir", dir, "-f", manifest)
		within(t, time.Minute, "no pod is left", func() bool { st, _ := degradedStatus(t, dir); return len(st.Pods) == 0 })
	}
	t.Logf("%d of %d kills hit a live command", hit, 2*rounds)
	if hit < rounds/2 {
		t.Errorf("only %d of %d kills hit a live command", hit, 2*rounds)
	}
	killed(t, aim, "lab", "apply", "--dir", dir, "-f", manifest)
	must(t, "lab", "down", "--dir", dir)
	before.expectSame(t, dir)
}

// A restart that is killed at any moment is completed by the next one: one agent runs, and the pod is there once.
func TestKilledRestart(t *testing.T) {
	dir := labDir(t)
	before := takeSnapshot(t, dir)
	must(t, "lab", "up", "--nodes", "1", "--from", examples2(t), "--dir", dir)
	begun := time.Now()
	must(t, "lab", "restart", "--dir", dir, "node1")
	whole := time.Since(begun)
	const rounds = 6
	hit, aim := 0, nettest.NewAim(whole)
	for i := range rounds {
		for _, what := range []string{"node1", "one"} {
			hit += killed(t, aim, "lab", "restart", "--dir", dir, what)
			must(t, "lab", "restart", "--dir", dir, what)
		}
		agents := 0
		for _, p := range processesOf(dir) {
			if strings.Contains(p, "weft-agent agent ") {
				agents++
			}
		}
		if st := status(t, dir); agents != 1 || len(st.Pods) != 2 || len(st.Problems) != 0 {
			t.Fatalf("round %d: %d agents, %+v, %q", i, agents, st.Pods, st.Problems)
		}
	}
	t.Logf("%d of %d kills hit a live command", hit, 2*rounds)
	if hit < rounds/2 {
		t.Errorf("only %d of %d kills hit a live command", hit, 2*rounds)
	}
	killed(t, aim, "lab", "restart", "--dir", dir, "node1")
	must(t, "lab", "down", "--dir", dir)
	before.expectSame(t, dir)
}
