// SPDX-License-Identifier: Apache-2.0

package phase1

import (
	"bytes"
	"log/slog"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/nettest"
)

const (
	beCall = "WEFT_TEST_PHASE1" // start or undo
	beDir  = "WEFT_TEST_PHASE1_DIR"
	bePod  = "WEFT_TEST_PHASE1_POD"
	beStep = "WEFT_TEST_PHASE1_STEP" // the process ends before this step
)

// TestBeKilled is not a test: it is the call that the tests kill.
func TestBeKilled(t *testing.T) {
	call := os.Getenv(beCall)
	if call == "" {
		return
	}
	ns, err := netns.Open(os.Getenv(bePod))
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close()
	left, err := strconv.Atoi(os.Getenv(beStep))
	if err != nil {
		left = -1
	}
	c := Config{Dir: os.Getenv(beDir), Log: slog.New(slog.DiscardHandler), Step: func(string) error {
		if left--; left == -1 {
			return syscall.Kill(os.Getpid(), syscall.SIGKILL)
		}
		return nil
	}}
	if call == "undo" {
		err = c.Undo(t.Context(), ns, "pod1", "shop/vm1")
	} else {
		_, err = c.Start(t.Context(), ns, "pod1", testInput(model.VMBridge, model.VMDirect))
	}
	if err != nil {
		t.Fatal(err)
	}
}

// killed runs a call in a child process that is killed before a step (-1: none) or after a time, and reports whether it
// was killed.
func (w *world) killed(call string, step int, after time.Duration) bool {
	w.t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^TestBeKilled$")
	cmd.Env = append(os.Environ(), beCall+"="+call, beDir+"="+w.Dir, bePod+"="+w.pod.Path(), beStep+"="+strconv.Itoa(step))
	if step < 0 {
		cmd.Env = append(cmd.Env, beStep+"=none")
	}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	// counted from the start of the process
	kill := time.AfterFunc(after, func() { _ = cmd.Process.Kill() })
	defer kill.Stop()
	err := cmd.Wait()
	if err == nil {
		return false
	}
	if s, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || !s.Signaled() {
		w.t.Fatalf("%s: %v\n%s", call, err, out.String())
	}
	return true
}

// TestKilledAtEveryStep: a start or an undo resumes a call that was killed at any step.
func TestKilledAtEveryStep(t *testing.T) {
	w := newWorld(t)
	w.flannel()
	before := w.dump()
	w.start(testInput(model.VMBridge, model.VMDirect))
	after := w.dump()
	w.undo()
	steps := map[string]int{}
	for _, call := range []string{"start", "undo"} {
		for step := 0; ; step++ {
			if call == "undo" {
				w.start(testInput(model.VMBridge, model.VMDirect))
			}
			hit := w.killed(call, step, time.Minute)
			steps[call] = step
			if step%2 == 0 { // every other call is started again
				w.expectApplied(w.start(testInput(model.VMBridge, model.VMDirect)))
				if d := cmp.Diff(after, w.dump()); d != "" {
					t.Fatalf("%s killed at step %d, started again (-want +have):\n%s", call, step, d)
				}
			}
			w.undo()
			if d := cmp.Diff(before, w.dump()); d != "" {
				t.Fatalf("%s killed at step %d, undone (-before +after):\n%s", call, step, d)
			}
			if !hit {
				break
			}
		}
	}
	t.Logf("steps: %v", steps)
	if steps["start"] < 8 || steps["undo"] < 8 {
		t.Errorf("too few steps: %v", steps)
	}
}

// TestKilledAnywhere: the same for calls that are killed at any time, also within kernel operations.
func TestKilledAnywhere(t *testing.T) {
	w := newWorld(t)
	w.flannel()
	before := w.dump()
	const rounds = 16
	for _, call := range []string{"start", "undo"} {
		usual := time.Hour
		for range 2 {
			begin := time.Now()
			w.killed(call, -1, time.Hour)
			usual = min(usual, time.Since(begin))
		}
		hits, aim := 0, nettest.NewAim(usual)
		for i := range rounds {
			w.undo()
			if call == "undo" {
				w.start(testInput(model.VMBridge, model.VMDirect))
			}
			hit := w.killed(call, -1, aim.Moment())
			if aim.Record(hit); hit {
				hits++
			}
			if i%2 == 0 {
				w.expectApplied(w.start(testInput(model.VMBridge, model.VMDirect)))
			}
			w.undo()
			if d := cmp.Diff(before, w.dump()); d != "" {
				t.Fatalf("%s killed (-before +after):\n%s", call, d)
			}
		}
		t.Logf("%s: %d of %d kills hit a live call", call, hits, rounds)
		if hits < rounds/4 {
			t.Errorf("%s: too few kills hit a live call: %d of %d", call, hits, rounds)
		}
	}
}
