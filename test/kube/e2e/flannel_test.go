// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/nettest"
)

// TestFlannel: a cluster with flannel's flanneld and pods is migrated to weft node by node, with the same ConfigMap,
// with a TCP connection and a thousand datagrams per second between the nodes. Nothing is renumbered, re-created or
// lost; while one node has weft and the other flannel, new pods reach each other in both directions. A node can be
// migrated back.
func TestFlannel(t *testing.T) {
	weft(t)
	if out, err := exec.CommandContext(t.Context(), "../../flannel/build.sh").CombinedOutput(); err != nil {
		nettest.SkipMissing(t, fmt.Sprintf("flannel's flanneld cannot be built: %v: %s", err, out))
	}
	c := newCluster(t, "e2efla", "--cni", "flanneld", "--no-dns")
	ns := c.namespace(t)
	nodes := []string{"node1", "node2"}
	at := map[string]string{}
	for _, node := range nodes {
		c.apply(t, ns, strings.ReplaceAll(sender, "NODE", node))
	}
	for _, p := range c.allReady(t, ns, 2, time.Minute) {
		at[p.Spec.NodeName] = p.Status.PodIP
	}
	before := map[string]string{}
	for _, node := range nodes {
		before[node] = c.published(t, node)
	}
	c.prepare(t)
	for node, peer := range map[string]string{"node1": "node2", "node2": "node1"} {
		c.request(t, at[node], "PUT", "peer", at[peer]+":7000")
		c.request(t, at[node], "PUT", "stream", at[peer]+":7000")
	}
	time.Sleep(time.Second)
	for _, node := range nodes {
		c.request(t, at[node], "DELETE", "report", "") // packets that were sent before the peer listened
	}
	for i, node := range nodes {
		c.switchToWeft(t, node)
		if after := c.published(t, node); after != before[node] {
			t.Errorf("%s publishes\n%s\nbefore\n%s", node, after, before[node])
		}
		c.apply(t, ns, deployment(fmt.Sprint("web", i), 2))
		c.expectAllConnected(t, ns, 2+2*(i+1))
	}
	// One node is migrated back.
	c.switchToFlannel(t, "node1")
	if after := c.published(t, "node1"); after != before["node1"] {
		t.Errorf("node1, with flannel again, publishes\n%s\nbefore\n%s", after, before["node1"])
	}
	c.apply(t, ns, deployment("web2", 2))
	c.expectAllConnected(t, ns, 8)
	for _, node := range nodes {
		r := c.report(t, at[node])
		t.Logf(
			"%s: %d datagrams came, %d lost, %d of them in its own socket's buffer; the longest silence %d µs; %d answers over TCP, the longest wait %d µs",
			node, r.Received, r.Lost, r.Dropped, r.GapMicro, r.Stream.Answers, r.Stream.GapMicro)
		if r.Lost > r.Dropped || r.Refused > 0 || r.Received < 1000 || r.Stream.Error != "" || r.Stream.Answers < 100 {
			t.Errorf("%s: %+v", node, r)
		}
	}
	// Pods that one implementation has attached are detached by the other.
	c.kubectl(t, "-n", ns, "delete", "deployment,pod", "--all", "--timeout=120s")
	eventually(t, 30*time.Second, func() error {
		for _, node := range nodes {
			left := c.must(t, "exec", node, "sh", "-c",
				"ls /var/lib/cni/networks/cbr0 | grep ^10 || true; ls /var/lib/cni/flannel; ip -o link show master cni0")
			if left != "" {
				return fmt.Errorf("%s has left %s", node, left)
			}
		}
		return nil
	})
}

const sender = `
apiVersion: v1
kind: Pod
metadata: {name: NODE}
spec:
  nodeName: NODE
  terminationGracePeriodSeconds: 0
  containers: [{name: c, image: "localhost/weft-traffic:test", readinessProbe: {httpGet: {path: /report, port: 8080}, periodSeconds: 1}}]
`

// request sends a request to a pod of test/kube/traffic.
func (c Cluster) request(t *testing.T, pod, method, path, body string) {
	t.Helper()
	c.must(t, "exec", "control", "curl", "-sS", "-f", "-m", "10", "-X", method, "-d", body, "http://"+pod+":8080/"+path)
}

// published returns what a node publishes for others, and its tunnel device.
func (c Cluster) published(t *testing.T, node string) string {
	t.Helper()
	var n struct {
		Metadata struct{ Annotations map[string]string }
	}
	c.get(t, &n, "node", node)
	for key := range n.Metadata.Annotations {
		if !strings.HasPrefix(key, "flannel.alpha.coreos.com/") {
			delete(n.Metadata.Annotations, key)
		}
	}
	text, err := json.Marshal(n.Metadata.Annotations)
	if err != nil || len(n.Metadata.Annotations) < 4 {
		t.Fatalf("%s publishes %s: %v", node, text, err)
	}
	device := c.must(t, "exec", node, "sh", "-c",
		"cat /sys/class/net/flannel.1/ifindex /sys/class/net/flannel.1/address /sys/class/net/cni0/ifindex")
	return string(text) + "\n" + device
}

// prepare installs weft as in docs/tasks/kubernetes.md, without nodes.
func (c Cluster) prepare(t *testing.T) {
	t.Helper()
	c.must(t, "load", "../../../bin/weft-image.tar")
	for _, file := range []string{"nad-crd.yaml", "crds.yaml"} {
		c.kubectl(t, "create", "-f", "../../../deploy/"+file)
	}
	conf := c.kubectl(t, "-n", "kube-flannel", "get", "configmap", "kube-flannel-cfg", "-o", "json")
	var cm struct {
		Data map[string]string `json:"data"`
	}
	if err := json.Unmarshal([]byte(conf), &cm); err != nil {
		t.Fatal(err)
	}
	copied, err := json.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{
			"name": "kube-flannel-cfg", "namespace": "kube-system",
		}, "data": cm.Data,
	})
	if err != nil {
		t.Fatal(err)
	}
	c.apply(t, "kube-system", string(copied))
	manifest, err := os.ReadFile("../../../deploy/weft-flannel.yaml")
	if err != nil {
		t.Fatal(err)
	}
	const linux = "kubernetes.io/os: linux"
	c.apply(t, "kube-system", strings.Replace(string(manifest), linux, linux+"\n        weft: here", 1))
}

// switchToWeft stops a node's flanneld and starts weft.
func (c Cluster) switchToWeft(t *testing.T, node string) {
	t.Helper()
	c.must(t, "exec", node, "sh", "-c",
		"kill $(cat /run/flanneld.pid); while kill -0 $(cat /run/flanneld.pid) 2>/dev/null; do sleep 0.1; done")
	c.kubectl(t, "label", "node", node, "weft=here")
	eventually(t, 3*time.Minute, func() error {
		out, err := c.try("exec", node, "sh", "-c",
			"curl -sS -f -m 5 http://127.0.0.1:9119/readyz && ls /etc/cni/net.d/00-weft.conflist && ip route show proto 119")
		if err == nil && !strings.Contains(out, "flannel.1") {
			err = fmt.Errorf("%s: no route of weft over flannel.1: %s", node, out)
		}
		return err
	})
}

// switchToFlannel stops weft on a node and starts flannel's flanneld.
func (c Cluster) switchToFlannel(t *testing.T, node string) {
	t.Helper()
	c.kubectl(t, "label", "node", node, "weft-")
	eventually(t, 3*time.Minute, func() error {
		out, err := c.try("kubectl", "-n", "kube-system", "get", "pods", "-o", "name", "--field-selector",
			"spec.nodeName="+node)
		if err == nil && strings.Contains(out, "pod/weft-") {
			err = fmt.Errorf("%s still has %s", node, out)
		}
		return err
	})
	c.must(t, "exec", node, "rm", "/etc/cni/net.d/00-weft.conflist")
	c.must(t, "start", "flanneld-"+node)
	eventually(t, 3*time.Minute, func() error {
		out, err := c.try("exec", node, "sh", "-c", "ip route show dev flannel.1 | grep -v 'proto 119'")
		if err == nil && !strings.Contains(out, "via") {
			err = fmt.Errorf("%s has no route of flannel: %s", node, out)
		}
		return err
	})
}

// expectAllConnected waits until a namespace has n pods, and checks that all web servers reach each other.
func (c Cluster) expectAllConnected(t *testing.T, ns string, n int) {
	t.Helper()
	all := c.allReady(t, ns, n, 2*time.Minute)
	for _, from := range all {
		for _, to := range all {
			if !strings.HasPrefix(from.Metadata.Name, "web") || !strings.HasPrefix(to.Metadata.Name, "web") {
				continue
			}
			eventually(t, 20*time.Second, func() error {
				_, err := c.dial(from, "http", to.Status.PodIP, 8080)
				if err == nil {
					_, err = c.dial(from, "udp", to.Status.PodIP, 8081)
				}
				return err
			})
		}
	}
}
