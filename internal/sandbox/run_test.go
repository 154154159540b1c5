// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/nettest"
	"github.com/weft-net/weft/internal/sandbox/container"
	"github.com/weft-net/weft/internal/sandbox/pod"
)

// TestRunAndStop: a pod is attached to loopback first, then to the default network; the plugins get the same arguments as
// from a kubelet's runtime; and DEL is called in reverse order.
func TestRunAndStop(t *testing.T) {
	w := newWorld(t)
	c := w.start(-1)
	d := w.apply(c, []byte(fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata:
  name: web
  annotations: {kubernetes.io/ingress-bandwidth: 10M, mine: yes-it-is}
spec:
  dnsConfig: {options: [{name: ndots, value: "2"}]}
  containers:
  - name: main
    image: nginx
    command: [/bin/sh, -c, "echo out $(WHO) on $(hostname); echo err >&2; cat /etc/resolv.conf /etc/hosts; printf part; exec sleep 1000"]
    ports: [{containerPort: 80, hostPort: 8080}]
    env: [{name: WHO, valueFrom: {fieldRef: {fieldPath: metadata.name}}}, {name: %s, value: %q}]
`, worldVar, w.dir)), "web", "Running")
	ns := w.path("state/netns", d.ID)
	args := fmt.Sprintf(
		"IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=web;K8S_POD_INFRA_CONTAINER_ID=%s;K8S_POD_UID=%s", d.ID,
		d.UID,
	)
	var want []string
	for _, call := range []string{"ADD\x00loopback\x00lo", "ADD\x00stub\x00eth0", "ADD\x00second\x00eth0"} {
		want = append(want, strings.Join([]string{call, d.ID, ns, args}, "\x00"))
	}
	equal(t, "calls of run", w.calls(), want)
	conf, _ := json.Marshal(w.stdin("ADD", "stub")["runtimeConfig"])
	for _, part := range []string{
		`"portMappings":[{"containerPort":80,"hostPort":8080,"protocol":"tcp"}]`,
		`"bandwidth":{"ingressBurst":2147483647,"ingressRate":10000000}`,
		`"options":["ndots:2"]`,
		`"io.kubernetes.cri.pod-annotations":{"kubernetes.io/ingress-bandwidth":"10M","mine":"yes-it-is"}`,
	} {
		if !strings.Contains(string(conf), part) {
			t.Errorf("runtimeConfig %s lacks %s", conf, part)
		}
	}
	if rc, _ := json.Marshal(w.stdin("ADD", "second")["runtimeConfig"]); strings.Contains(string(rc), "bandwidth") {
		t.Errorf("the second plugin declares no bandwidth and got %s", rc)
	}
	equal(t, "addresses", d.IPs, []string{"10.1.2.3", "fd00::3"})
	if !d.Ready || d.Netns != ns || d.Annotations["mine"] != "yes-it-is" {
		t.Errorf("pod %+v", d.Pod)
	}
	w.checkLog(d)
	w.stop(c, "web")
	equal(t, "calls of stop", w.verbs()[3:], []string{"DEL second eth0", "DEL stub eth0", "DEL loopback lo"})
	if prev := w.stdin("DEL", "stub")["prevResult"]; prev == nil {
		t.Error("DEL got no prevResult")
	}
	w.quit()
	w.clean("after stop")
}

// checkLog checks the log: its path, its format, and the container's output.
func (w *world) checkLog(d Detail) {
	w.t.Helper()
	path := w.path("logs", "default_web_"+d.UID, "main", "0.log")
	w.eventually("the log is complete", func() bool { return strings.Contains(w.text(path), "fd00::3") })
	text := w.text(path)
	for _, part := range []string{
		"stdout F out web on web", "stderr F err", "stdout F nameserver 10.1.2.53", "stdout F search from.cni",
		"stdout F options ndots:2",
		"stdout F 10.1.2.3\tweb", "stdout F fd00::3\tweb",
	} {
		if !strings.Contains(text, part+"\n") {
			w.t.Errorf("log lacks %q:\n%s", part, text)
		}
	}
	for line := range strings.Lines(text) {
		if _, err := container.ParseLogLine(strings.TrimSuffix(line, "\n")); err != nil {
			w.t.Error(err)
		}
	}
}

func (w *world) text(path string) string {
	b, _ := os.ReadFile(path)
	return string(b)
}

// TestRollBack: if a network fails, the pod is detached from both, the sandbox is stopped, and all errors are reported.
func TestRollBack(t *testing.T) {
	w := newWorld(t)
	w.write("fail-ADD-second", "")
	w.write("fail-DEL-stub", "")
	c := w.start(-1)
	if _, err := c.Apply(context.Background(), w.manifest("web", sleeper), "test"); err != nil {
		t.Fatal(err)
	}
	var d Detail
	w.eventually("the failure is reported", func() bool {
		d, _ = c.Get(context.Background(), "default", "web")
		return d.Reason == "FailedCreatePodSandBox"
	})
	for _, part := range []string{
		"stub second refuses ADD", "code 42, as configured", "tear down the network", "stub stub refuses DEL",
	} {
		if !strings.Contains(d.Message, part) {
			t.Errorf("message %q lacks %q", d.Message, part)
		}
	}
	if d.State != "Pending" || d.Ready {
		t.Errorf("pod is %s, ready %v", d.State, d.Ready)
	}
	equal(t, "first calls", w.verbs()[:6], []string{
		"ADD loopback lo", "ADD stub eth0", "ADD second eth0", "DEL second eth0", "DEL stub eth0", "DEL loopback lo",
	})
	for _, f := range []string{"fail-ADD-second", "fail-DEL-stub"} {
		if err := os.Remove(w.path(f)); err != nil {
			t.Fatal(err)
		}
	}
	d = w.await(c, "web", "Running")
	if d.Attempt == 0 {
		t.Error("the sandbox that works is still the first attempt")
	}
	w.eventually("the dead sandboxes are garbage-collected", func() bool {
		d, _ = c.Get(context.Background(), "default", "web")
		return len(d.Sandboxes) == 1
	})
	w.stop(c, "web")
	w.quit()
	w.clean("after stop")
}

// TestHostNetwork: a pod with hostNetwork needs no CNI, not even a ready network.
func TestHostNetwork(t *testing.T) {
	w := newWorld(t)
	if err := os.Remove(w.path("net.d/10-stubs.conflist")); err != nil {
		t.Fatal(err)
	}
	c := w.start(-1)
	d := w.apply(c, w.manifest("host", "  hostNetwork: true\n"+sleeper), "host", "Running")
	if d.Netns != "" || len(d.IPs) != 0 || !d.Ready || len(w.calls()) != 0 {
		t.Errorf("pod %+v, calls %q", d.Pod, w.calls())
	}
	own, _ := os.Readlink("/proc/self/ns/net")
	theirs, _ := os.Readlink(fmt.Sprintf("/proc/%d/ns/net", d.Containers[0].Process.PID))
	if own != theirs {
		t.Errorf("its network is %s, the node's %s", theirs, own)
	}
	w.stop(c, "host")
	w.quit()
	w.clean("after stop")
}

// TestWaitsForTheNetwork: a pod waits for a ready network, with a reason, and runs as soon as there is one. Bad files are
// reported and skipped.
func TestWaitsForTheNetwork(t *testing.T) {
	w := newWorld(t)
	if err := os.Rename(w.path("net.d/10-stubs.conflist"), w.path("aside")); err != nil {
		t.Fatal(err)
	}
	w.write("net.d/00-bad.conf", `{"name":`)
	w.write("net.d/05-missing.conf", `{"cniVersion":"1.0.0","name":"m","type":"no-such-plugin"}`)
	c := w.start(-1)
	if _, err := c.Apply(context.Background(), w.manifest("web", sleeper), "test"); err != nil {
		t.Fatal(err)
	}
	var d Detail
	w.eventually("it waits", func() bool {
		d, _ = c.Get(context.Background(), "default", "web")
		return d.Reason == "NetworkNotReady"
	})
	for _, part := range []string{
		"no network configuration in " + w.path("net.d"), "00-bad.conf", `plugin "no-such-plugin"`,
	} {
		if !strings.Contains(d.Message, part) {
			t.Errorf("message %q lacks %q", d.Message, part)
		}
	}
	if err := os.Rename(w.path("aside"), w.path("net.d/10-stubs.conflist")); err != nil {
		t.Fatal(err)
	}
	w.await(c, "web", "Running")
	w.stop(c, "web")
	w.quit()
	w.clean("after stop")
}

// TestNamespaces: containers share the pod's namespaces, and have their own mount and PID namespaces.
func TestNamespaces(t *testing.T) {
	w := newWorld(t)
	c := w.start(-1)
	d := w.apply(c, w.manifest("two", `  containers:
  - {name: a, image: x, command: [sleep, "1000"], ENV}
  - {name: b, image: x, command: [sleep, "1000"], ENV}`), "two", "Running")
	shared := w.apply(c, w.manifest("shared", `  shareProcessNamespace: true
  containers:
  - {name: a, image: x, command: [sleep, "1000"], ENV}
  - {name: b, image: x, command: [sleep, "1000"], ENV}`), "shared", "Running")
	link := func(d Detail, i int, kind string) string {
		s, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/%s", d.Containers[i].Process.PID, kind))
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	for _, kind := range []string{"net", "uts", "ipc", "mnt", "pid"} {
		own, _ := os.Readlink("/proc/self/ns/" + kind)
		a, b := link(d, 0, kind), link(d, 1, kind)
		if a == own {
			t.Errorf("%s: the container is in the node's namespace", kind)
		}
		if same, want := a == b, kind != "mnt" && kind != "pid"; same != want {
			t.Errorf("%s: two containers share it: %v, want %v", kind, same, want)
		}
	}
	if link(shared, 0, "pid") != link(shared, 1, "pid") {
		t.Error("shareProcessNamespace: they do not share it")
	}
	var st unix.Stat_t
	if err := unix.Stat(d.Netns, &st); err != nil || link(d, 0, "net") != fmt.Sprintf("net:[%d]", st.Ino) {
		t.Errorf("the network is not the one bound at %s: %v", d.Netns, err)
	}
	w.noForeignNamespaces(d)
	for _, name := range []string{"two", "shared"} {
		w.stop(c, name)
	}
	w.quit()
	w.clean("after stop")
}

// noForeignNamespaces checks that the container has no bind mounts of namespaces, which would keep the networks of dead
// pods alive.
func (w *world) noForeignNamespaces(d Detail) {
	w.t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/mountinfo", d.Containers[0].Process.PID))
	if err != nil || strings.Contains(string(b), " - nsfs ") {
		w.t.Errorf("the container has namespaces mounted (%v):\n%s", err, b)
	}
}

// TestPodsDirectory: adding, changing and removing files in the pods directory starts, replaces and terminates pods.
func TestPodsDirectory(t *testing.T) {
	w := newWorld(t)
	c := w.start(-1)
	w.write("manifests/a.yaml", string(w.manifest("static", sleeper)))
	first := w.await(c, "static", "Running")
	w.write("manifests/b.yaml", "kind: Pod\napiVersion: v1\nmetadata: {}\n")
	w.write("manifests/a.yaml", string(w.manifest("static", strings.Replace(sleeper, "1000", "2000", 1))))
	w.eventually("it is replaced", func() bool {
		d, err := c.Get(context.Background(), "default", "static")
		return err == nil && d.State == "Running" && d.UID != first.UID
	})
	if err := os.Remove(w.path("manifests/a.yaml")); err != nil {
		t.Fatal(err)
	}
	w.eventually("it is gone", func() bool {
		pods, err := c.List(context.Background())
		return err == nil && len(pods) == 0
	})
	if !strings.Contains(w.out(), "metadata.name is missing") {
		t.Error("the bad manifest is not logged")
	}
	w.quit()
	w.clean("after the file was removed")
}

// TestStateDirectory: Serve refuses a directory of another program, and one with a running server.
func TestStateDirectory(t *testing.T) {
	w := newWorld(t)
	cfg := w.config()
	if err := os.MkdirAll(filepath.Join(cfg.StateDir, "foreign"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := Serve(context.Background(), cfg); err == nil ||
		!strings.Contains(err.Error(), "contains other files (foreign)") {
		t.Errorf("foreign directory: %v", err)
	}
	if err := os.RemoveAll(cfg.StateDir); err != nil {
		t.Fatal(err)
	}
	w.start(-1)
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Second)
	defer cancel()
	if err := Serve(ctx, cfg); err == nil || !strings.Contains(err.Error(), "in use by another runtime") {
		t.Errorf("second runtime: %v", err)
	}
	w.quit()
}

// TestNameConflict: if a crash left a name reserved, the stale sandbox is removed and the name reserved again.
func TestNameConflict(t *testing.T) {
	w := newWorld(t)
	c := w.start(-1)
	p, _, err := pod.Parse(w.manifest("web", sleeper), "test")
	if err != nil {
		t.Fatal(err)
	}
	w.write("state/names/default_web_"+string(p[0].UID)+"_0", "stale\n")
	d := w.apply(c, w.manifest("web", sleeper), "web", "Running")
	if !strings.Contains(w.out(), "removing a stale sandbox with the same name") {
		t.Error("the conflict is not logged")
	}
	if got := w.read("state/names/default_web_" + d.UID + "_0"); got != d.ID+"\n" {
		t.Errorf("the name belongs to %q", got)
	}
	w.stop(c, "web")
	w.quit()
	w.clean("after stop")
}

// TestDiskFull: on a full disk a pod is refused with a message and not started; when there is space again, it runs.
func TestDiskFull(t *testing.T) {
	w := newWorld(t)
	if err := os.Mkdir(w.path("state"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", w.path("state"), "tmpfs", 0, "size=64k"); err != nil {
		nettest.Skip(t, fmt.Sprintf("tmpfs cannot be mounted: %v", err))
	}
	t.Cleanup(func() { _ = unix.Unmount(w.path("state"), unix.MNT_DETACH) })
	c := w.start(-1)
	filler, err := os.Create(w.path("state/filler"))
	if err != nil {
		t.Fatal(err)
	}
	for err == nil {
		_, err = filler.Write(make([]byte, 4096))
	}
	_ = filler.Close()
	_, err = c.Apply(context.Background(), w.manifest("web", sleeper), "test")
	if err == nil || !strings.Contains(err.Error(), "no space left on device") ||
		!strings.Contains(err.Error(), "pod default/web") {
		t.Errorf("apply: %v", err)
	}
	// With space for the pod's record only, the sandbox cannot be created.
	if err := os.Truncate(w.path("state/filler"), fileSize(t, w.path("state/filler"))-8192); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Apply(context.Background(), w.manifest("web", sleeper), "test"); err != nil {
		t.Fatal(err)
	}
	w.eventually("the message is set", func() bool {
		d, err := c.Get(context.Background(), "default", "web")
		return err == nil && strings.Contains(d.Message, "no space left on device")
	})
	if err := os.Remove(w.path("state/filler")); err != nil {
		t.Fatal(err)
	}
	w.await(c, "web", "Running")
	w.stop(c, "web")
	w.quit()
	if err := unix.Unmount(w.path("state"), unix.MNT_DETACH); err != nil {
		t.Fatal(err)
	}
	w.clean("after stop")
}

func fileSize(t *testing.T, path string) int64 {
	t.Helper()
	st, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return st.Size()
}

// TestManyAtOnce runs many pods in parallel and stops them.
func TestManyAtOnce(t *testing.T) {
	w := newWorld(t)
	c := w.start(-1)
	const n = 30
	var all []byte
	for i := range n {
		all = append(append(all, w.manifest(fmt.Sprintf("p%d", i), sleeper)...), "---\n"...)
	}
	if _, err := c.Apply(context.Background(), all, "test"); err != nil {
		t.Fatal(err)
	}
	for i := range n {
		w.await(c, fmt.Sprintf("p%d", i), "Running")
	}
	for i := range n {
		if err := c.Stop(context.Background(), "default", fmt.Sprintf("p%d", i), new(time.Duration), false); err != nil {
			t.Error(err)
		}
	}
	w.eventually("all are gone", func() bool {
		pods, err := c.List(context.Background())
		return err == nil && len(pods) == 0
	})
	w.quit()
	w.clean("after stop")
}
