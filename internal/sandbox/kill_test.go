// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/nettest"
)

// killedPod has an init container and two regular ones, so that there are many steps at which the runtime can be killed.
const killedPod = `  initContainers:
  - {name: init, image: x, command: ["true"], ENV}
  containers:
  - {name: a, image: x, command: [sleep, "1000"], ENV}
  - {name: b, image: x, command: [sleep, "1000"], ENV}`

// lastStep returns the last step of the killed runtime.
func (w *world) lastStep() string {
	b, _ := os.ReadFile(w.path("last-step"))
	return strings.TrimSpace(string(b))
}

// settle restarts the runtime. If it knows the pod, the pod must reach its state Running. Then settle stops the pod and
// checks that nothing is left.
func (w *world) settle(name, when string, running bool) {
	w.t.Helper()
	c := w.start(-1)
	d, err := c.Get(context.Background(), "default", name)
	switch {
	case err != nil && running:
		w.t.Fatalf("%s: the pod was lost: %v", when, err)
	case err == nil && d.State != "Terminating":
		w.await(c, name, "Running")
		fallthrough
	case err == nil:
		_ = c.Stop(context.Background(), "default", name, new(time.Duration), false) // it may be gone already
		w.eventually(when+": the pod is gone", func() bool {
			_, err := c.Get(context.Background(), "default", name)
			return err != nil
		})
	}
	w.quit()
	w.clean(when)
}

// TestKilledAtEveryStepOfRun kills the runtime at every step of running a pod. A restarted runtime runs the pod.
func TestKilledAtEveryStepOfRun(t *testing.T) {
	nettest.EndToEnd(t)
	w := newWorld(t)
	kills := 0
	for k := 0; ; k++ {
		if k > 200 {
			t.Fatal("more than 200 steps")
		}
		c := w.start(k)
		_, err := c.Apply(context.Background(), w.manifest("web", killedPod), "test")
		ran := false
		w.eventually("the runtime dies, or the pod runs", func() bool {
			d, err := c.Get(context.Background(), "default", "web")
			ran = err == nil && d.State == "Running" && d.Ready
			return ran || w.dead()
		})
		if ran && !w.dead() {
			w.kill() // otherwise stopping would reach step k
			w.settle("web", "after the last step", true)
			break
		}
		w.kill()
		kills++
		w.settle("web", fmt.Sprintf("killed at step %d (%s)", k, w.lastStep()), err == nil)
	}
	t.Logf("%d kills, one at each step of running a pod, all hit a live call", kills)
	if kills < 15 {
		t.Errorf("only %d steps", kills)
	}
}

// TestKilledAtEveryStepOfStop kills the runtime at every step of stopping a pod. A restarted runtime continues to stop it.
func TestKilledAtEveryStepOfStop(t *testing.T) {
	nettest.EndToEnd(t)
	w := newWorld(t)
	kills := 0
	for k := 0; ; k++ {
		if k > 200 {
			t.Fatal("more than 200 steps")
		}
		c := w.start(-1)
		w.apply(c, w.manifest("web", killedPod), "web", "Running")
		w.kill()
		c = w.start(k)
		_ = c.Stop(context.Background(), "default", "web", new(time.Duration), false)
		gone := false
		w.eventually("the runtime dies, or the pod is gone", func() bool {
			_, err := c.Get(context.Background(), "default", "web")
			gone = err != nil && strings.Contains(err.Error(), "not found")
			return gone || w.dead()
		})
		if gone {
			w.kill()
			w.clean("without a kill")
			break
		}
		w.kill()
		kills++
		w.settle("web", fmt.Sprintf("killed at step %d (%s)", k, w.lastStep()), false)
	}
	t.Logf("%d kills, one at each step of stopping a pod, all hit a live call", kills)
	if kills < 12 {
		t.Errorf("only %d steps", kills)
	}
}

// TestKilledAtRandomMoments kills the runtime at random times while pods are created and deleted. In the end nothing is
// left.
func TestKilledAtRandomMoments(t *testing.T) {
	n := 200
	if s := os.Getenv("WEFT_KILLS"); s != "" {
		n, _ = strconv.Atoi(s)
	}
	if testing.Short() {
		n = 20
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	w := newWorld(t)
	live := 0
	aim := 80 * time.Millisecond // the maximum wait, adapted to the speed of the host
	name := ""
	for i := 0; i < n || live < n/4 && i < 5*n; i++ {
		c := w.start(-1)
		if i%2 == 0 { // what is applied now is stopped next
			name = fmt.Sprintf("p%d", r.IntN(3))
		}
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		go func() {
			if r := i % 2; r == 0 {
				_, _ = c.Apply(ctx, w.manifest(name, killedPod), "test")
			} else {
				_ = c.Stop(ctx, "default", name, new(time.Duration), false)
			}
		}()
		time.Sleep(time.Duration(r.Int64N(int64(aim))))
		w.kill()
		cancel()
		switch w.lastStep() {
		case "": // too early
			aim = min(aim*5/4, 2*time.Second)
		case "container: started", "stop: checkpoint removed": // too late
			aim = max(aim*15/16, 5*time.Millisecond)
		default:
			live++
		}
		_ = os.Remove(w.path("last-step"))
		if i%20 == 19 || i >= n-1 {
			w.empty(fmt.Sprintf("after %d kills", i+1))
		}
	}
	t.Logf("%d of at least %d kills hit a live call", live, n)
	if live < n/4 {
		t.Errorf("only %d kills hit a live call, want %d", live, n/4)
	}
}

// empty stops all pods and checks that nothing is left.
func (w *world) empty(when string) {
	w.t.Helper()
	c := w.start(-1)
	w.eventually("all pods are gone", func() bool {
		pods, err := c.List(context.Background())
		for _, p := range pods {
			_ = c.Stop(context.Background(), p.Namespace, p.Name, new(time.Duration), false)
		}
		return err == nil && len(pods) == 0
	})
	w.quit()
	w.clean(when)
}

// TestPluginOutlivesTheRuntime: a plugin continues after its runtime was killed. Its ADD must not finish after the DEL of
// the next runtime.
func TestPluginOutlivesTheRuntime(t *testing.T) {
	w := newWorld(t)
	w.write("slow-ADD-stub", "0.7")
	c := w.start(-1)
	if _, err := c.Apply(context.Background(), w.manifest("web", killedPod), "test"); err != nil {
		t.Fatal(err)
	}
	w.eventually("the plugin is called", func() bool { return len(w.calls()) == 2 })
	w.kill()
	_ = os.Remove(w.path("slow-ADD-stub"))
	w.empty("killed in the middle of an ADD")
}
