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

// attachments returns the agent's metric of attachments.
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

// TestNodeKilled: a node crashes and boots again. The other one keeps working; after the boot the node's pods run
// again.
func TestNodeKilled(t *testing.T) {
	c := kube(t)
	ns := c.namespace(t)
	pods := c.rollOut(t, ns, "web", 4)
	stays := pods[0]
	c.must(t, "stop", "node2")
	back := func() {
		c.must(t, "start", "node2")
		eventually(t, 2*time.Minute, func() error {
			_, err := c.try("kubectl", "wait", "--for=condition=Ready", "node/node2", "--timeout=1s")
			return err
		})
	}
	back = once(back)
	t.Cleanup(back)
	eventually(t, 90*time.Second, func() error {
		_, err := c.try("kubectl", "wait", "--for=condition=Ready=unknown", "node/node2", "--timeout=1s")
		return err
	})
	if _, err := c.dial(stays, "http", pods[1].Status.PodIP, 8080); err != nil {
		t.Errorf("between the pods of the node that stays: %v", err)
	}
	if _, err := c.fetch("control", "http://"+pods[2].Status.PodIP+":8080/hostname"); err == nil {
		t.Error("a pod of the dead node responds")
	}
	back()
	// The kubelet re-creates their sandboxes.
	eventually(t, 2*time.Minute, func() error {
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

// once returns a function that calls f only the first time.
func once(f func()) func() {
	done := false
	return func() {
		if !done {
			done = true
			f()
		}
	}
}

// TestAgentKilled: weft's agents are killed repeatedly while 50 pods start, and while they are deleted. All start, and
// nothing is left.
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
				_, _ = c.try("exec", n, "pkill", "-9", "-x", "weft-agent") // in the node's PID namespace
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
	eventually(t, time.Minute, func() error {
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
	eventually(t, 4*time.Minute, func() error { // the kubelet's restart backoff grows
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
		if s := set.Status; s.NumberReady != s.DesiredNumberScheduled ||
			s.UpdatedNumberScheduled != s.DesiredNumberScheduled || s.ObservedGeneration != set.Metadata.Generation {
			return fmt.Errorf("daemonset weft: %+v", s)
		}
		return nil
	})
}

// sandboxes returns the IDs of a pod's running sandboxes.
func (c Cluster) sandboxes(t *testing.T, p Pod) []string {
	t.Helper()
	out := c.must(t, "exec", p.Spec.NodeName, "sh", "-c",
		`for id in $(ctr -n k8s.io containers list -q 'labels."io.kubernetes.pod.uid"==`+p.Metadata.UID+
			`,labels."io.cri-containerd.kind"==sandbox'); do ctr -n k8s.io tasks list | awk -v id=$id '$1==id && $3=="RUNNING"{print id}'; done`)
	return strings.Fields(out)
}

// TestAPIServerStopped: while the API server is down and after agents restart, the kubelet re-creates the sandbox of a
// known pod, with network; the API server is updated when it is back.
func TestAPIServerStopped(t *testing.T) {
	c := weft(t)
	ns := c.namespace(t)
	// New pods, for which the kubelet has no backoff from earlier kills.
	c.kubectl(t, "-n", "kube-system", "rollout", "restart", "daemonset/weft")
	c.weftReady(t)
	pods := c.rollOut(t, ns, "web", 2)
	back := once(func() { c.must(t, "start", "apiserver"); c.weftReady(t) })
	t.Cleanup(back)
	c.must(t, "stop", "apiserver")
	for _, p := range pods {
		if _, err := c.dial(p, "http", pods[1].Status.PodIP, 8080); err != nil {
			t.Errorf("traffic without the API server: %v", err)
		}
		if _, err := c.try("exec", p.Spec.NodeName, "pkill", "-9", "-x", "weft-agent"); err != nil {
			t.Fatal(err)
		}
	}
	for _, p := range pods {
		old := c.sandboxes(t, p)
		if len(old) != 1 {
			t.Fatalf("%s has the sandboxes %q, want one", p.Metadata.Name, old)
		}
		c.must(t, "exec", p.Spec.NodeName, "ctr", "-n", "k8s.io", "tasks", "kill", "-s", "SIGKILL", old[0])
		began := time.Now()
		eventually(t, 2*time.Minute, func() error {
			now := c.sandboxes(t, p)
			if len(now) != 1 || now[0] == old[0] {
				return fmt.Errorf("%s has the sandboxes %q, before it had %q", p.Metadata.Name, now, old)
			}
			// From outside: the nodes' routes and the pod's.
			address := c.must(t, "exec", p.Spec.NodeName, "sh", "-c", `pid=$(ctr -n k8s.io tasks list | awk '$1=="`+now[0]+
				`"{print $2}'); nsenter -t $pid -n ip -4 -o addr show dev eth0 scope global | awk '{sub("/.*", "", $4); print $4}'`)
			out, err := c.fetch("control", "http://"+strings.TrimSpace(address)+":8080/hostname")
			if err == nil && out != p.Metadata.Name {
				return fmt.Errorf("%s answers %q", address, out)
			}
			return err
		})
		t.Logf("the new sandbox of %s responds after %s", p.Metadata.Name, time.Since(began).Round(100*time.Millisecond))
	}
	back()
	c.allReady(t, ns, 2, time.Minute)
}
