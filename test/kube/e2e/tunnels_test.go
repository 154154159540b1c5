// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// TestUpgradeInUserSpace: with the back end udp and the DaemonSet weft-tunnels the agents are replaced, repeatedly, while two
// pods on different nodes send each other a datagram each 5 ms. None is lost. Without the DaemonSet's pods the agents
// forward the packets.
func TestUpgradeInUserSpace(t *testing.T) {
	c := weft(t)
	before := c.kubectl(t, "-n", "kube-system", "get", "configmap", "weft", "-o", "jsonpath={.data}")
	t.Cleanup(func() {
		c.kubectl(t, "delete", "--ignore-not-found", "-k", "../../../deploy/tunnels")
		c.kubectl(t, "-n", "kube-system", "patch", "configmap", "weft", "--type=merge", "-p", `{"data":`+before+`}`)
		c.kubectl(t, "-n", "kube-system", "rollout", "restart", "daemonset/weft")
		c.weftReady(t)
	})
	c.configure(t, "  encapsulation: udp\n")
	ns := c.namespace(t)
	for _, node := range []string{"node1", "node2"} {
		c.apply(t, ns, fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: %s}
spec:
  nodeName: %[1]s
  terminationGracePeriodSeconds: 0
  containers: [{name: c, image: "localhost/weft-traffic:test", args: [-every=5ms], readinessProbe: {httpGet: {path: /report, port: 8080}, periodSeconds: 1}}]
`, node))
	}
	at := map[string]string{}
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
	reset := func() {
		t.Helper()
		time.Sleep(time.Second)
		for node := range at {
			ask("DELETE", node, "report", "")
		}
	}
	lost := func(step string) (sum uint64) {
		t.Helper()
		time.Sleep(time.Second) // those on their way
		for node := range at {
			r := c.report(t, at[node])
			t.Logf("%s: %s received %d datagrams, %d are lost, %d failed to send; the longest silence was %d ms", step, node,
				r.Received, r.Lost, r.Refused, r.GapMicro/1000)
			if sum += r.Lost + r.Refused; r.Received < 100 {
				t.Errorf("%s: %s received %d datagrams", step, node, r.Received)
			}
		}
		return sum
	}
	replace := func() {
		t.Helper()
		c.kubectl(t, "-n", "kube-system", "rollout", "restart", "daemonset/weft")
		c.weftReady(t)
	}
	eventually(t, time.Minute, func() error {
		if n := c.report(t, at["node1"]).Received; n == 0 {
			return fmt.Errorf("no datagram has arrived")
		}
		return nil
	})

	reset()
	replace()
	t.Logf("without the process %d datagrams are lost", lost("agents that forward packets themselves"))

	c.kubectl(t, "apply", "-k", "../../../deploy/tunnels")
	c.kubectl(t, "-n", "kube-system", "wait", "--for=condition=Ready", "--timeout=2m", "pod", "-l",
		"app.kubernetes.io/name=weft-tunnels")
	eventually(t, time.Minute, func() error {
		for _, node := range c.nodes(t) {
			if log := c.agentLog(t, node); !strings.Contains(log, "tunnels are passed to their process") {
				return fmt.Errorf("%s: the agent does not use the process:\n%s", node, log)
			}
		}
		return nil
	})
	reset()
	for range 3 {
		replace()
	}
	if n := lost("with the process, 3 replaced agents"); n > 0 {
		t.Errorf("%d datagrams are lost", n)
	}
	for _, node := range c.nodes(t) {
		if log := c.agentLog(t, node); !strings.Contains(log, "tunnels continue in their process") {
			t.Errorf("%s: the new agent does not use the process:\n%s", node, log)
		}
	}

	c.kubectl(t, "delete", "-k", "../../../deploy/tunnels")
	time.Sleep(time.Second)
	reset()
	if n := lost("without its DaemonSet"); n > 0 {
		t.Errorf("%d datagrams are lost a second after the process has ended", n)
	}
}

// agentLog returns the log of the agent of a node.
func (c Cluster) agentLog(t *testing.T, node string) string {
	t.Helper()
	pods := c.kubectl(t, "-n", "kube-system", "get", "pod", "-l", "app.kubernetes.io/name=weft", "--field-selector",
		"spec.nodeName="+node+",status.phase=Running", "-o", "name")
	return c.kubectl(t, "-n", "kube-system", "logs", "-c", "agent", strings.TrimSpace(strings.Split(pods, "\n")[0]))
}
