// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/nettest"
	"github.com/weft-net/weft/internal/sandbox/container"
	"github.com/weft-net/weft/internal/sandbox/process"
)

// TestMain also runs the runtime, its pause processes, monitors and init stages in the test binary.
func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == "sandbox" {
		switch os.Args[2] {
		case "test-serve":
			os.Exit(testServe())
		case "test-greet":
			testHello()
			os.Exit(1)
		}
		code, _ := container.Reexec(os.Args[:1], os.Args[2:], os.Stderr)
		os.Exit(code)
	}
	os.Exit(nettest.Main(m))
}

const (
	worldVar = "WEFT_TEST_WORLD" // is set for all processes of a test's world
	killVar  = "WEFT_TEST_KILL"  // the step at which the runtime kills itself
)

// testServe is the runtime process of a test.
func testServe() int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	w := &world{dir: os.Getenv(worldVar)}
	cfg := w.config()
	kill := int64(-1)
	if s := os.Getenv(killVar); s != "" {
		kill, _ = strconv.ParseInt(s, 10, 64)
	}
	var n atomic.Int64
	last, _ := os.OpenFile(w.path("last-step"), os.O_CREATE|os.O_WRONLY, 0o600)
	cfg.Failpoint = func(name string) {
		_, _ = last.WriteAt(fmt.Appendf(nil, "%-60s", name), 0)
		if n.Add(1)-1 == kill {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
	}
	if err := Serve(ctx, cfg); err != nil {
		fmt.Fprintln(os.Stderr, "serve:", err)
		return 1
	}
	return 0
}

// world is the node of one test: directories, stub plugins, and at most one runtime.
type world struct {
	t   testing.TB
	dir string
	cmd *exec.Cmd
}

// out returns the output of the runtimes.
func (w *world) out() string { return w.text(w.path("runtime.log")) }

func (w *world) path(elem ...string) string {
	return filepath.Join(append([]string{w.dir}, elem...)...)
}

func (w *world) config() Config {
	return Config{
		StateDir: w.path("state"), ConfDir: w.path("net.d"), BinDirs: []string{w.path("bin")}, CacheDir: w.path("cache"),
		LogDir: w.path("logs"), PodsDir: w.path("manifests"), Node: "here", Self: os.Args[:1], Now: time.Now,
		Log: slog.New(slog.NewTextHandler(os.Stderr, nil)),
		Times: Times{
			Relist: 40 * time.Millisecond, Unhealthy: 10 * time.Second, BackOff: 300 * time.Millisecond,
			BackOffCap:   600 * time.Millisecond,
			BackOffReset: time.Minute, Retry: 50 * time.Millisecond, RetryCap: 200 * time.Millisecond,
			Housekeeping: 100 * time.Millisecond,
		},
	}
}

// stub is a CNI plugin that records its calls and has one file for each attachment.
const stub = `#!/bin/sh
d='%s'; me=${0##*/}
conf=$(cat)
if [ "$CNI_COMMAND" = VERSION ]; then
  echo '{"cniVersion":"1.1.0","supportedVersions":["0.1.0","0.2.0","0.3.0","0.3.1","0.4.0","1.0.0","1.1.0"]}'; exit 0
fi
echo "$CNI_COMMAND $me $CNI_IFNAME $CNI_CONTAINERID $CNI_NETNS $CNI_ARGS" >> "$d/calls"
printf '%%s' "$conf" > "$d/stdin-$CNI_COMMAND-$me"
if [ -e "$d/fail-$CNI_COMMAND-$me" ]; then
  echo "{\"cniVersion\":\"1.0.0\",\"code\":42,\"msg\":\"stub $me refuses $CNI_COMMAND\",\"details\":\"as configured\"}"; exit 1
fi
f="$d/alloc/$me-$CNI_CONTAINERID-$CNI_IFNAME"
case $CNI_COMMAND in
ADD)
  [ -e "$CNI_NETNS" ] || { echo '{"code":8,"msg":"no netns"}'; exit 1; }
  if [ -e "$d/slow-$CNI_COMMAND-$me" ]; then sleep "$(cat "$d/slow-$CNI_COMMAND-$me")"; fi
  if [ -e "$f" ]; then echo "{\"code\":100,\"msg\":\"$f exists\"}"; exit 1; fi
  : > "$f"
  case $me in
  loopback) echo '{"cniVersion":"1.0.0","interfaces":[{"name":"lo","sandbox":"'"$CNI_NETNS"'"}],"ips":[{"address":"127.0.0.1/8","interface":0}]}' ;;
  *) echo '{"cniVersion":"1.0.0","interfaces":[{"name":"eth0","sandbox":"'"$CNI_NETNS"'"}],"ips":[{"address":"10.1.2.3/24","interface":0},{"address":"fd00::3/64","interface":0}],"dns":{"nameservers":["10.1.2.53"],"search":["from.cni"]}}' ;;
  esac ;;
DEL)
  if [ -e "$d/slow-$CNI_COMMAND-$me" ]; then sleep "$(cat "$d/slow-$CNI_COMMAND-$me")"; fi
  rm -f "$f" ;;
esac
exit 0
`

const stubNet = `{"cniVersion":"1.0.0","name":"stubs","plugins":[
 {"type":"stub","capabilities":{"portMappings":true,"bandwidth":true,"dns":true,"io.kubernetes.cri.pod-annotations":true}},
 {"type":"second","capabilities":{"portMappings":true}}]}`

// newWorld returns a world with stub plugins, which is removed at the end of the test.
func newWorld(t testing.TB) *world {
	t.Helper()
	w := &world{t: t, dir: t.TempDir()}
	for _, d := range []string{"net.d", "bin", "cache", "logs", "alloc", "manifests"} {
		if err := os.MkdirAll(w.path(d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"loopback", "stub", "second"} {
		w.write("bin/"+name, fmt.Sprintf(stub, w.dir))
	}
	w.write("net.d/10-stubs.conflist", stubNet)
	t.Cleanup(func() {
		w.kill()
		if err := process.KillByEnv(context.Background(), worldVar, w.dir); err != nil {
			t.Error(err)
		}
		entries, _ := os.ReadDir(w.path("state/netns"))
		for _, e := range entries {
			_ = netns.Remove(w.path("state/netns", e.Name()))
		}
		if strings.Contains(w.out(), "DATA RACE") { // with go test -race
			t.Error("the runtime has a data race")
		}
		if t.Failed() {
			t.Logf("runtime:\n%s", tail(w.out(), 60))
		}
	})
	return w
}

func tail(s string, n int) string {
	lines := strings.Split(s, "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

func (w *world) write(name, text string) {
	w.t.Helper()
	if err := process.WriteFile(w.path(name), []byte(text), 0o755); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) read(name string) string {
	b, err := os.ReadFile(w.path(name))
	if err != nil {
		w.t.Helper()
		w.t.Fatal(err)
	}
	return string(b)
}

// start starts the runtime, which kills itself at the step with a number (-1: at none).
func (w *world) start(killAt int) *Client {
	w.t.Helper()
	w.cmd = exec.Command(os.Args[0], "sandbox", "test-serve")
	w.cmd.Env = append(os.Environ(), worldVar+"="+w.dir, "WEFT_JOURNAL_DIR="+w.path("journal"),
		killVar+"="+strconv.Itoa(killAt))
	out, err := os.OpenFile(w.path("runtime.log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		w.t.Fatal(err)
	}
	defer func() { _ = out.Close() }()
	w.cmd.Stdout, w.cmd.Stderr = out, out
	if err := w.cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	c := NewClient(w.path("state"))
	w.eventually("the runtime answers", func() bool {
		_, err := c.Status(context.Background())
		return err == nil || !process.Locked(w.path("state/lock")) && w.dead()
	})
	return c
}

func (w *world) dead() bool {
	id, ok := process.Read(w.cmd.Process.Pid)
	return !ok || !id.Alive()
}

// kill kills the runtime, if it runs, and waits.
func (w *world) kill() {
	if w.cmd != nil {
		_ = w.cmd.Process.Kill()
		_ = w.cmd.Wait()
		w.cmd = nil
	}
}

// quit stops the runtime and waits.
func (w *world) quit() {
	w.t.Helper()
	_ = w.cmd.Process.Signal(syscall.SIGTERM)
	if err := w.cmd.Wait(); err != nil {
		w.t.Errorf("runtime: %v", err)
	}
	w.cmd = nil
}

func (w *world) eventually(what string, ok func() bool) {
	w.t.Helper()
	for end := time.Now().Add(time.Minute); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			w.t.Fatalf("never: %s\nruntime:\n%s", what, tail(w.out(), 40))
		}
	}
}

// manifest returns the manifest of a pod whose containers are passed as YAML.
func (w *world) manifest(name, spec string) []byte {
	return fmt.Appendf(
		nil, "apiVersion: v1\nkind: Pod\nmetadata: {name: %s}\nspec:\n  terminationGracePeriodSeconds: 0\n%s\n",
		name, strings.ReplaceAll(spec, "ENV", fmt.Sprintf("env: [{name: %s, value: %s}]", worldVar, w.dir)))
}

const sleeper = `  containers:
  - {name: main, image: x, command: [sleep, "1000"], ENV}`

// apply applies a manifest and waits for the pod's state.
func (w *world) apply(c *Client, manifest []byte, name, state string) Detail {
	w.t.Helper()
	if _, err := c.Apply(context.Background(), manifest, "test"); err != nil {
		w.t.Fatal(err)
	}
	return w.await(c, name, state)
}

func (w *world) await(c *Client, name, state string) Detail {
	w.t.Helper()
	var d Detail
	w.eventually("pod "+name+" is "+state, func() bool {
		var err error
		d, err = c.Get(context.Background(), "default", name)
		return err == nil && d.State == state
	})
	return d
}

// stop stops a pod and waits until it is gone.
func (w *world) stop(c *Client, name string) {
	w.t.Helper()
	grace := time.Duration(0)
	if err := c.Stop(context.Background(), "default", name, &grace, false); err != nil {
		w.t.Fatal(err)
	}
	w.eventually("pod "+name+" is gone", func() bool {
		_, err := c.Get(context.Background(), "default", name)
		return err != nil && strings.Contains(err.Error(), "not found")
	})
}

// clean fails the test if anything of a pod is left. The runtime must have stopped.
func (w *world) clean(when string) {
	w.t.Helper()
	for _, dir := range []string{
		"state/sandboxes", "state/checkpoints", "state/netns", "state/names", "state/pods", "cache/results", "alloc", "logs",
	} {
		entries, _ := os.ReadDir(w.path(dir))
		for _, e := range entries {
			w.t.Errorf("%s: left: %s/%s", when, dir, e.Name())
		}
	}
	left, err := process.ByEnv(worldVar, w.dir)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, id := range left {
		cmd, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", id.PID))
		w.t.Errorf("%s: left: process %d %q", when, id.PID, bytes.ReplaceAll(cmd, []byte{0}, []byte(" ")))
	}
	mounts, _ := os.ReadFile("/proc/self/mountinfo")
	if strings.Contains(string(mounts), w.dir) {
		w.t.Errorf("%s: left: mounts below %s", when, w.dir)
	}
	if w.t.Failed() {
		w.t.FailNow()
	}
}

// calls returns the lines that the stub plugins wrote.
func (w *world) calls() []string {
	b, _ := os.ReadFile(w.path("calls"))
	return strings.Fields(strings.ReplaceAll(string(b), " ", "\x00"))
}

// verbs returns the calls as "VERB plugin interface".
func (w *world) verbs() []string {
	var out []string
	for _, c := range w.calls() {
		out = append(out, strings.Join(strings.Split(c, "\x00")[:3], " "))
	}
	return out
}

func (w *world) stdin(verb, plugin string) map[string]any {
	w.t.Helper()
	var m map[string]any
	if err := json.Unmarshal([]byte(w.read("stdin-"+verb+"-"+plugin)), &m); err != nil {
		w.t.Fatal(err)
	}
	return m
}

func equal(t *testing.T, what string, got, want []string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s:\n got %q\nwant %q", what, got, want)
	}
}
