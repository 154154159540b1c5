// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// Report is the report of a pod of test/kube/traffic.
type Report struct {
	Sent, Refused, Received, Last, Lost, Twice uint64
	GapMicro                                   int64    // the longest time without a datagram
	Dropped                                    uint64   // dropped because the receiver's buffer was full
	PauseMicro                                 int64    // the longest pause of the sender itself
	Stream                                     struct { // one TCP connection
		Answers  uint64
		Error    string
		GapMicro int64
	}
}

// upgrades is the number of upgrades under traffic.
const upgrades = 20

// TestUpgrade: weft is upgraded to another image and rolled back, repeatedly, while two pods on different nodes send each
// other a thousand numbered datagrams per second. None is lost.
func TestUpgrade(t *testing.T) {
	c := weft(t)
	ns := c.namespace(t)
	at := map[string]string{}
	for _, node := range []string{"node1", "node2"} {
		c.apply(t, ns, fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: %s}
spec:
  nodeName: %[1]s
  terminationGracePeriodSeconds: 0
  containers: [{name: c, image: "localhost/weft-traffic:test", readinessProbe: {httpGet: {path: /report, port: 8080}, periodSeconds: 1}}]
`, node))
	}
	for _, p := range c.allReady(t, ns, 2, time.Minute) {
		at[p.Spec.NodeName] = p.Status.PodIP
	}
	ask := func(method, node, path, body string) {
		t.Helper()
		c.must(t, "exec", "control", "curl", "-sS", "-f", "-m", "5", "-X", method, "-d", body,
			"http://"+at[node]+":8080/"+path)
	}
	for node, peer := range map[string]string{"node1": "node2", "node2": "node1"} {
		ask("PUT", node, "peer", at[peer]+":7000")
	}
	time.Sleep(2 * time.Second)
	for node := range at {
		ask("DELETE", node, "report", "") // packets that were sent before the peer listened
	}
	c.otherImage(t)
	t.Cleanup(func() { c.image(t, "dev"); c.weftReady(t) })
	has := map[string]string{"dev": c.programs(t)}
	began := time.Now()
	for i := range upgrades {
		tag := []string{"other", "dev"}[i%2]
		if i%2 == 0 {
			c.image(t, tag)
		} else {
			c.kubectl(t, "-n", "kube-system", "rollout", "undo", "daemonset/weft") // as docs/tasks/upgrade.md rolls back
		}
		c.weftReady(t)
		now := c.programs(t)
		if i == 0 {
			has[tag] = now
		}
		if now != has[tag] || has["other"] == has["dev"] {
			t.Fatalf("after upgrade %d to %s the nodes have\n%s\nwant\n%s\nand not\n%s", i+1, tag, now, has["other"], has["dev"])
		}
	}
	took := time.Since(began).Round(time.Second)
	for node, peer := range map[string]string{"node1": "node2", "node2": "node1"} {
		t.Logf("%s after %d upgrades in %s: the longest silence was %d µs, its peer's own longest pause %d µs",
			node, upgrades, took, c.report(t, at[node]).GapMicro, c.report(t, at[peer]).PauseMicro)
	}
	for node := range at {
		ask("DELETE", node, "peer", "")
	}
	time.Sleep(time.Second)
	one, two := c.report(t, at["node1"]), c.report(t, at["node2"])
	for _, r := range []Report{one, two} {
		t.Logf("%d datagrams received, %d lost, %d duplicated, %d failed to send", r.Received, r.Lost,
			r.Twice, r.Refused)
		if r.Lost > 0 || r.Refused > 0 || r.Received < 1000 {
			t.Errorf("%d of %d datagrams lost, %d failed to send", r.Lost, r.Received+r.Lost, r.Refused)
		}
	}
	if one.Last != two.Sent || two.Last != one.Sent {
		t.Errorf("the last received were %d and %d, the last sent %d and %d", one.Last, two.Last,
			two.Sent, one.Sent)
	}
}

// otherImage builds an image of another version from the same sources and loads it on the nodes. Its programs differ.
func (c Cluster) otherImage(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	if out, err := exec.CommandContext(ctx, "make", "-C", "../../..", "image-here", "IMAGE=localhost/weft:other",
		"VERSION=other", "IMAGE_DIR=bin/other").CombinedOutput(); err != nil {
		t.Fatalf("make image: %v\n%s", err, out)
	}
	c.must(t, "load", "../../../bin/other/weft-image.tar")
}

// programs returns each node's checksum of weft-cni and the version of its agent.
func (c Cluster) programs(t *testing.T) string {
	t.Helper()
	var all strings.Builder
	for _, node := range c.nodes(t) {
		all.WriteString(
			c.must(t, "exec", node, "sh", "-c",
				"sha256sum /opt/cni/bin/weft-cni; curl -sS -m 5 http://127.0.0.1:9119/metrics | grep ^weft_build_info"),
		)
	}
	return all.String()
}

func (c Cluster) report(t *testing.T, pod string) Report {
	t.Helper()
	var r Report
	text := c.must(t, "exec", "control", "curl", "-sS", "-f", "-m", "5", "http://"+pod+":8080/report")
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		t.Fatalf("report %q: %v", text, err)
	}
	return r
}

// image updates the DaemonSet's image on all nodes at once: the order is not tested.
func (c Cluster) image(t *testing.T, tag string) {
	t.Helper()
	c.kubectl(t, "-n", "kube-system", "set", "image", "daemonset/weft", "*=localhost/weft:"+tag)
}
