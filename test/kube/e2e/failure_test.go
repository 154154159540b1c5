// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

// attachments gives what the agent of a node counts.
func (c Cluster) attachments(t *testing.T, node string) string {
	t.Helper()
	out, err := c.try("exec", node, "curl", "-sS", "-m", "5", "http://127.0.0.1:9119/metrics")
	if err != nil {
		return err.Error()
	}
	for line := range strings.Lines(out) {
		if strings.HasPrefix(line, "weft_attachments ") {
			return strings.TrimSpace(line)
		}
	}
	return "no weft_attachments"
}

// TestNodeKilled: a node dies at once and comes back as after a boot. The other one goes on; when it is back, its pods run again.
func TestNodeKilled(t *testing.T) {
	c := kube(t)
	ns := c.namespace(t)
	pods := c.rollOut(t, ns, "web", 4)
	stays := pods[0]
	c.must(t, "stop", "node2")
	back := func() {
		c.must(t, "start", "node2")
		within(t, 2*time.Minute, func() error {
			_, err := c.try("kubectl", "wait", "--for=condition=Ready", "node/node2", "--timeout=1s")
			return err
		})
	}
	back = once(back)
	t.Cleanup(back)
	within(t, 90*time.Second, func() error {
		_, err := c.try("kubectl", "wait", "--for=condition=Ready=unknown", "node/node2", "--timeout=1s")
		return err
	})
	if _, err := c.dial(stays, "http", pods[1].Status.PodIP, 8080); err != nil {
		t.Errorf("between the pods of the node that stays: %v", err)
	}
	if _, err := c.fetch("control", "http://"+pods[2].Status.PodIP+":8080/hostname"); err == nil {
		t.Error("a pod of the dead node answers")
	}
	back()
	// The kubelet makes their sandboxes anew.
	within(t, 2*time.Minute, func() error {
		var errs []error
		for _, p := range c.pods(t, ns) {
			if p.Spec.NodeName == "node2" {
				_, err := c.dial(stays, "http", p.Status.PodIP, 8080)
				errs = append(errs, err)
			}
		}
		if len(errs) == 0 {
			return errors.New("node2 has no pods")
		}
		return errors.Join(errs...)
	})
	c.allReady(t, ns, 4, time.Minute)
}

// once makes a function that does its work the first time only.
func once(f func()) func() {
	done := false
	return func() {
		if !done {
			done = true
			f()
		}
	}
}

// TestAgentKilled: weft's agents are killed again and again while 50 pods start, and again while they end. All start, and nothing is left.
func TestAgentKilled(t *testing.T) {
	c := weft(t)
	ns := c.namespace(t)
	before := map[string]string{}
	for _, n := range c.nodes(t) {
		before[n] = c.attachments(t, n)
	}
	murder := func(times int) {
		for range times {
			for _, n := range c.nodes(t) {
				_, _ = c.try("exec", n, "pkill", "-9", "-x", "weft") // in the node's namespace of processes
			}
			time.Sleep(1500 * time.Millisecond)
		}
	}
	c.apply(t, ns, deployment("web", 50))
	murder(4)
	pods := c.allReady(t, ns, 50, 4*time.Minute)
	addresses := map[string]string{}
	for _, p := range pods {
		if other := addresses[p.Status.PodIP]; other != "" {
			t.Errorf("%s and %s have %s", other, p.Metadata.Name, p.Status.PodIP)
		}
		addresses[p.Status.PodIP] = p.Metadata.Name
		if out, err := c.fetch("control", "http://"+p.Status.PodIP+":8080/hostname"); err != nil || out != p.Metadata.Name {
			t.Errorf("%s at %s answers %q: %v", p.Metadata.Name, p.Status.PodIP, out, err)
		}
	}
	c.kubectl(t, "-n", ns, "delete", "deployment", "web")
	murder(2)
	c.allReady(t, ns, 0, 3*time.Minute)
	c.weftReady(t)
	within(t, time.Minute, func() error {
		for n, want := range before {
			if got := c.attachments(t, n); got != want {
				return fmt.Errorf("%s has %s, before it had %s", n, got, want)
			}
		}
		return nil
	})
}

// weftReady waits until the agents are ready on every node.
func (c Cluster) weftReady(t *testing.T) {
	t.Helper()
	within(t, 4*time.Minute, func() error { // the kubelet waits longer each time it starts a container that dies
		var set struct {
			Metadata struct{ Generation int }
			Status   struct{ DesiredNumberScheduled, NumberReady, UpdatedNumberScheduled, ObservedGeneration int }
		}
		out, err := c.try("kubectl", "-n", "kube-system", "get", "daemonset", "weft", "-o", "json")
		if err != nil {
			return err
		}
		if err := json.Unmarshal([]byte(out), &set); err != nil {
			return err
		}
		if s := set.Status; s.NumberReady != s.DesiredNumberScheduled || s.UpdatedNumberScheduled != s.DesiredNumberScheduled || s.ObservedGeneration != set.Metadata.Generation {
			return fmt.Errorf("daemonset weft: %+v", s)
		}
		return nil
	})
}

// sandbox gives the first process of a pod's sandbox, by its id in the runtime.
func (c Cluster) sandbox(t *testing.T, p Pod) string {
	t.Helper()
	out := c.must(t, "exec", p.Spec.NodeName, "ctr", "-n", "k8s.io", "containers", "list", "-q",
		`labels."io.kubernetes.pod.uid"==`+p.Metadata.UID+`,labels."io.cri-containerd.kind"==sandbox`)
	return strings.TrimSpace(out)
}

// TestAPIServerStopped: with the API server gone and the agents started anew, the sandbox of a known pod that dies is made again, with
// network; and the old one's is given back.
func TestAPIServerStopped(t *testing.T) {
	c := weft(t)
	ns := c.namespace(t)
	pods := c.rollOut(t, ns, "web", 2)
	back := once(func() { c.must(t, "start", "apiserver"); c.weftReady(t) })
	t.Cleanup(back)
	c.must(t, "stop", "apiserver")
	for _, p := range pods {
		if _, err := c.dial(p, "http", pods[1].Status.PodIP, 8080); err != nil {
			t.Errorf("traffic without the API server: %v", err)
		}
		if _, err := c.try("exec", p.Spec.NodeName, "pkill", "-9", "-x", "weft"); err != nil {
			t.Fatal(err)
		}
	}
	for _, p := range pods {
		old := c.sandbox(t, p)
		if old == "" || strings.Contains(old, "\n") {
			t.Fatalf("%s has the sandboxes %q, want one", p.Metadata.Name, old)
		}
		c.must(t, "exec", p.Spec.NodeName, "ctr", "-n", "k8s.io", "tasks", "kill", "-s", "SIGKILL", old)
		within(t, 2*time.Minute, func() error {
			out, err := c.try("exec", p.Spec.NodeName, "sh", "-c",
				`for n in $(ls /run/netns); do a=$(nsenter --net=/run/netns/$n ip -4 -o addr show dev eth0 scope global | awk '{sub("/.*", "", $4); print $4}'); `+
					`[ "$(curl -s -m 2 http://$a:8080/hostname)" != `+p.Metadata.Name+` ] || echo $a; done`)
			if err == nil && strings.TrimSpace(out) == "" {
				return fmt.Errorf("%s answers nowhere on %s", p.Metadata.Name, p.Spec.NodeName)
			}
			return err
		})
	}
	back()
	c.allReady(t, ns, 2, time.Minute)
}
