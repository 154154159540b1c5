// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/sandbox/container"
	"github.com/weft-net/weft/internal/sandbox/process"
)

// TestOrderOfContainers: ephemeral containers start first, then init containers in order, and regular ones after all of
// those have succeeded.
func TestOrderOfContainers(t *testing.T) {
	w := newWorld(t)
	c := w.start(-1)
	script := func(what string) string {
		return fmt.Sprintf(`command: [sh, -c, "echo %s >> %s; %s"], ENV`, what, w.path("order"), "%s")
	}
	d := w.apply(c, w.manifest("web", `  restartPolicy: OnFailure
  ephemeralContainers:
  - {name: debug, image: x, `+fmt.Sprintf(script("debug"), "sleep 0.01")+`}
  initContainers:
  - {name: one, image: x, `+fmt.Sprintf(script("one"), "test -e "+w.path("once")+" || { touch "+w.path("once")+"; sleep 0.1; exit 3; }")+`}
  - {name: side, image: x, restartPolicy: Always, `+fmt.Sprintf(script("side"), "exec sleep 1000")+`}
  - {name: two, image: x, `+fmt.Sprintf(script("two"), "sleep 0.1")+`}
  containers:
  - {name: main, image: x, `+fmt.Sprintf(script("main"), "sleep 0.1")+`}`), "web", "Succeeded")
	order := strings.Fields(w.read("order"))
	if order[0] != "debug" && order[1] != "debug" { // it starts first, but the others do not wait for it
		t.Errorf("order %q", order)
	}
	var rest []string
	for _, o := range order {
		if o != "debug" {
			rest = append(rest, o)
		}
	}
	equal(t, "order", rest, []string{"one", "one", "side", "two", "main"})
	for _, cv := range d.Containers {
		if cv.Name == "one" && cv.Restarts != 1 {
			t.Errorf("init container one was restarted %d times", cv.Restarts)
		}
	}
	w.eventually("the network of a succeeded pod is torn down", func() bool {
		entries, _ := os.ReadDir(w.path("alloc"))
		return len(entries) == 0
	})
	w.stop(c, "web")
	w.quit()
	w.clean("after stop")
}

// TestInitFails: an init container that fails permanently makes the pod fail, and no other container starts.
func TestInitFails(t *testing.T) {
	w := newWorld(t)
	c := w.start(-1)
	d := w.apply(c, w.manifest("web", `  restartPolicy: Never
  initContainers:
  - {name: bad, image: x, command: [sh, -c, "exit 9"], ENV}
`+sleeper), "web", "Failed")
	if d.Containers[0].ExitCode != 9 || d.Containers[1].State != "waiting" {
		t.Errorf("containers %+v", d.Containers)
	}
	w.stop(c, "web")
	w.quit()
	w.clean("after stop")
}

// TestRestartsBackOff: a container that exits is restarted, at first immediately, then after the back-off, which doubles
// up to its limit. All dead containers but the newest are removed with their logs.
func TestRestartsBackOff(t *testing.T) {
	w := newWorld(t)
	c := w.start(-1)
	if _, err := c.Apply(context.Background(), w.manifest("web", `  containers:
  - {name: main, image: x, command: [sh, -c, "date +%s%N >> `+w.path("starts")+`; exit 1"], ENV}`), "test"); err != nil {
		t.Fatal(err)
	}
	w.eventually("five starts", func() bool { return len(strings.Fields(w.text(w.path("starts")))) >= 5 })
	var at []time.Duration
	for _, s := range strings.Fields(w.read("starts")) {
		var ns int64
		_, _ = fmt.Sscan(s, &ns)
		at = append(at, time.Duration(ns))
	}
	for i, want := range []time.Duration{0, 300 * time.Millisecond, 600 * time.Millisecond, 600 * time.Millisecond} {
		if gap := at[i+1] - at[i]; gap < want || gap > want+10*time.Second {
			t.Errorf("restart %d came after %v, want %v", i+1, gap, want)
		}
	}
	var d Detail
	w.eventually("the back-off is reported", func() bool {
		d, _ = c.Get(context.Background(), "default", "web")
		return d.Reason == "CrashLoopBackOff" && d.State == "Running" && !d.Ready
	})
	// Older ones are removed after it has exited.
	w.eventually("the newest container and its log are left", func() bool {
		d, _ = c.Get(context.Background(), "default", "web")
		logs, _ := os.ReadDir(w.path("logs", "default_web_"+d.UID, "main"))
		return len(d.All) == 1 && len(logs) == 1
	})
	w.stop(c, "web")
	w.quit()
	w.clean("after stop")
}

// TestPodsOutliveTheRuntime: pods survive the runtime. The next runtime knows the logs and exit codes of the meantime.
func TestPodsOutliveTheRuntime(t *testing.T) {
	w := newWorld(t)
	c := w.start(-1)
	w.apply(c, w.manifest("web", `  restartPolicy: Never
  containers:
  - {name: stays, image: x, command: [sleep, "1000"], ENV}
  - {name: ends, image: x, command: [sh, -c, "while ! test -e `+w.path("go")+`; do sleep 0.02; done; echo after; exit 7"], ENV}`), "web", "Running")
	before, _ := c.Get(context.Background(), "default", "web")
	w.kill()
	w.write("go", "")
	log := before.Containers[1].Log
	w.eventually("the log goes on", func() bool { return strings.Contains(w.text(log), "stdout F after") })
	c = w.start(-1)
	var d Detail
	w.eventually("its end is known", func() bool {
		d, _ = c.Get(context.Background(), "default", "web")
		return len(d.Containers) == 2 && d.Containers[1].State == "exited"
	})
	if d.Containers[1].ExitCode != 7 || d.Containers[0].Process != before.Containers[0].Process || d.ID != before.ID {
		t.Errorf("before %+v\nafter %+v", before.Pod, d.Pod)
	}
	// If a monitor is killed, the kernel kills its container too, whose exit code is unknown then.
	monitors, err := process.ByEnv(container.EnvSandbox, d.ID)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range monitors {
		cmd, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", m.PID))
		if strings.Contains(string(cmd), "\x00monitor\x00") {
			_ = m.Signal(unix.SIGKILL)
		}
	}
	w.eventually("its end is unknown", func() bool {
		d, _ = c.Get(context.Background(), "default", "web")
		return d.Containers[0].State == "exited" && d.Containers[0].Reason == "ContainerStatusUnknown" && d.State == "Failed"
	})
	if d.Containers[0].Process.Alive() {
		t.Error("the container outlived its monitor")
	}
	w.stop(c, "web")
	w.quit()
	w.clean("after stop")
}

// TestSandboxDies: a sandbox whose pause process dies is replaced by one with a new network.
func TestSandboxDies(t *testing.T) {
	w := newWorld(t)
	c := w.start(-1)
	before := w.apply(c, w.manifest("web", sleeper), "web", "Running")
	if err := before.Sandboxes[0].Pause.Signal(unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	w.eventually("it runs in another sandbox", func() bool {
		d, err := c.Get(context.Background(), "default", "web")
		return err == nil && d.Ready && d.ID != before.ID && d.Attempt == 1 && len(d.Sandboxes) == 1
	})
	w.stop(c, "web")
	w.quit()
	w.clean("after stop")
}

// TestForeignProcessSurvives: a process that has reused a recorded PID is not killed.
func TestForeignProcessSurvives(t *testing.T) {
	w := newWorld(t)
	c := w.start(-1)
	d := w.apply(c, w.manifest("web", sleeper), "web", "Running")
	w.kill()
	victim, ok := process.Read(os.Getpid())
	if !ok {
		t.Fatal("this process does not exist")
	}
	pause := d.Sandboxes[0].Pause
	if err := process.WriteJSON(w.path("state/sandboxes", d.ID, "pause.json"), process.ID{
		PID: victim.PID, Start: victim.Start - 1,
	}); err != nil {
		t.Fatal(err)
	}
	w.empty("with a reused PID") // a wrong signal would kill this test
	if pause.Alive() {
		t.Error("the pause process lives")
	}
}

// TestLostFiles: the runtime recovers from the loss of any of its files.
func TestLostFiles(t *testing.T) {
	for name, lose := range map[string]func(w *world, id string) error{
		"directory":  func(w *world, id string) error { return os.RemoveAll(w.path("state/sandboxes", id)) },
		"record":     func(w *world, id string) error { return os.Remove(w.path("state/sandboxes", id, "config.json")) },
		"checkpoint": func(w *world, id string) error { return os.Remove(w.path("state/checkpoints", id+".json")) },
		"checksum": func(w *world, id string) error {
			return os.WriteFile(w.path("state/checkpoints", id+".json"), []byte(`{"checksum":"00","data":{}}`), 0o600)
		},
		"pod":   func(w *world, _ string) error { return os.RemoveAll(w.path("state/pods")) },
		"cache": func(w *world, _ string) error { return os.RemoveAll(w.path("cache/results")) },
		"name":  func(w *world, _ string) error { return os.RemoveAll(w.path("state/names")) },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			c := w.start(-1)
			d := w.apply(c, w.manifest("web", sleeper), "web", "Running")
			w.kill()
			if err := lose(w, d.ID); err != nil {
				t.Fatal(err)
			}
			if name != "pod" {
				c = w.start(-1)
				w.eventually("it runs", func() bool {
					d, err := c.Get(context.Background(), "default", "web")
					return err == nil && d.Ready
				})
				w.kill()
			}
			w.empty("without " + name)
		})
	}
}

// TestStopIsRetried: if a network cannot be torn down, the pod stays Terminating with a message; --force removes it.
func TestStopIsRetried(t *testing.T) {
	w := newWorld(t)
	c := w.start(-1)
	w.apply(c, w.manifest("web", sleeper), "web", "Running")
	w.write("fail-DEL-stub", "")
	if err := c.Stop(context.Background(), "default", "web", new(time.Duration), false); err != nil {
		t.Fatal(err)
	}
	w.eventually("the message is set", func() bool {
		d, err := c.Get(context.Background(), "default", "web")
		return err == nil && d.State == "Terminating" && strings.Contains(d.Message, "stub stub refuses DEL")
	})
	if err := c.Stop(context.Background(), "default", "web", new(time.Duration), true); err != nil {
		t.Fatal(err)
	}
	w.eventually("it is gone", func() bool {
		_, err := c.Get(context.Background(), "default", "web")
		return err != nil
	})
	w.quit()
}

// TestNamespaceGoneBeforeStop: if the namespace is gone before the pod is stopped, DEL gets an empty CNI_NETNS.
func TestNamespaceGoneBeforeStop(t *testing.T) {
	w := newWorld(t)
	c := w.start(-1)
	d := w.apply(c, w.manifest("web", sleeper), "web", "Running")
	if err := unix.Unmount(d.Netns, unix.MNT_DETACH); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(d.Netns); err != nil {
		t.Fatal(err)
	}
	w.stop(c, "web")
	for _, call := range w.calls()[3:] {
		if f := strings.Split(call, "\x00"); f[4] != "" {
			t.Errorf("%s got CNI_NETNS %q", f[1], f[4])
		}
	}
	w.quit()
	w.clean("after stop")
}

// TestEphemeralIsAdded: an ephemeral container can be added to a running pod and is never restarted.
func TestEphemeralIsAdded(t *testing.T) {
	w := newWorld(t)
	c := w.start(-1)
	w.apply(c, w.manifest("web", sleeper), "web", "Running")
	with := w.manifest("web", `  ephemeralContainers:
  - {name: debug, image: x, command: [sh, -c, "echo once >> `+w.path("order")+`"], ENV}
`+sleeper)
	for range 2 {
		if out, err := c.Apply(context.Background(), with, "test"); err != nil || out.Pods[0].Created {
			t.Fatalf("%+v, %v", out, err)
		}
		w.eventually("it has run", func() bool {
			d, err := c.Get(context.Background(), "default", "web")
			return err == nil && len(d.Containers) == 2 && d.Containers[0].State == "exited" && d.Ready
		})
	}
	if got := w.read("order"); got != "once\n" {
		t.Errorf("it ran %q", got)
	}
	if _, err := c.Apply(context.Background(), w.manifest("web", sleeper), "test"); err == nil {
		t.Error("an ephemeral container was removed")
	}
	w.stop(c, "web")
	w.quit()
	w.clean("after stop")
}

// TestStopInTheMiddleOfAdd: if a pod is stopped during ADD, the plugin finishes, and DEL follows.
func TestStopInTheMiddleOfAdd(t *testing.T) {
	w := newWorld(t)
	w.write("slow-ADD-stub", "0.5")
	c := w.start(-1)
	if _, err := c.Apply(context.Background(), w.manifest("web", sleeper), "test"); err != nil {
		t.Fatal(err)
	}
	w.eventually("the plugin is called", func() bool { return len(w.calls()) == 2 })
	w.stop(c, "web")
	equal(t, "calls", w.verbs(), []string{
		"ADD loopback lo", "ADD stub eth0", "ADD second eth0", "DEL second eth0", "DEL stub eth0", "DEL loopback lo",
	})
	w.quit()
	w.clean("after stop")
}
