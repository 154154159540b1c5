// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

// TestExplain: weft explain reaches the agents through the API server, with the kubeconfig's rights. Pods and Services
// that answer have no fault; a Service without endpoints, a closed port, a policy and another program's firewall on the
// other node are named.
func TestExplain(t *testing.T) {
	c := weft(t)
	ns := c.namespace(t)
	pods := c.rollOut(t, ns, "web", 2)
	c.kubectl(t, "-n", ns, "expose", "deployment", "web", "--port=80", "--target-port=8080")
	c.apply(t, ns, "{apiVersion: v1, kind: Service, metadata: {name: empty}, spec: {selector: {app: none}, ports: [{name: http, port: 80}]}}")
	a, b := ns+"/"+pods[0].Metadata.Name, ns+"/"+pods[1].Metadata.Name
	far := pods[1].Spec.NodeName
	if pods[0].Spec.NodeName == far {
		t.Fatalf("both pods are on %s", far)
	}
	program, err := filepath.Abs("../../../bin/image/" + runtime.GOARCH + "/weft")
	if err != nil {
		t.Fatal(err)
	}
	expect := func(name, from, to string, code int, text string) {
		t.Helper()
		eventually(t, 30*time.Second, func() error {
			out, err := c.try("exec", "control", program, "explain", from, to)
			if (err != nil) != (code != 0) || !strings.Contains(out+fmt.Sprint(err), text) {
				return fmt.Errorf("%s: %s%w", name, out, err)
			}
			if strings.Contains(out+fmt.Sprint(err), "UnhandledError") {
				t.Errorf("%s: client-go writes to the terminal: %s%v", name, out, err)
			}
			return nil
		})
	}
	c.onNode(t, program)
	expect("pods", a, b+":8080", 0, "")
	expect("a node", a, far, 0, "")
	expect("a Service", a, ns+"/web:80", 0, "")
	trace := func(to string, code int, text string) error {
		out, err := c.try("exec", "control", program, "trace", a, to)
		if (err != nil) != (code != 0) || !strings.Contains(out+fmt.Sprint(err), text) {
			return fmt.Errorf("trace to %s: %s%w", to, out, err)
		}
		return nil
	}
	traced := func(to string, code int, text string) {
		t.Helper()
		if err := trace(to, code, text); err != nil {
			t.Error(err)
		}
	}
	traced(b+":8080", 0, "arrived")
	for range 4 { // to any of two pods, of which one is the one that asks
		traced(ns+"/web:80", 0, "service "+ns+"/web port 80/tcp, pod "+ns+"/")
	}
	traced(ns+"/empty:80", 1, "dropped by a packet filter")
	expect("a Service without endpoints", a, ns+"/empty:80", 1, "the service has no ready endpoint")
	c.kubectl(t, "-n", ns, "expose", "deployment", "web", "--name=outside", "--type=NodePort", "--port=80",
		"--target-port=8080")
	nodePort := c.kubectl(t, "-n", ns, "get", "service", "outside", "-o", "jsonpath={.spec.ports[0].nodePort}")
	outside := far + ":" + strings.TrimSpace(nodePort)
	expect("a port of a node", a, outside, 0, "")
	// kube-proxy rejects packets to the new port until it has the endpoints.
	eventually(t, 30*time.Second, func() error { return trace(outside, 0, "node "+far+" port") })
	for range 4 {
		traced(outside, 0, "node "+far+" port")
	}
	expect("a port of a Service by its name", a, ns+"/empty:http", 1, "the service has no ready endpoint")
	expect("a port without a process", a, b+":8099", 1, "no process listens on port 8099/tcp")
	c.must(t, "exec", far, "nft", "add table inet fw; add chain inet fw f { type filter hook forward priority 10; policy drop; }")
	expect("another firewall", a, b+":8080", 1, "policy of chain inet fw f is drop")
	c.must(t, "exec", far, "nft", "delete table inet fw")
	c.apply(t, ns, "{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: deny}, spec: {podSelector: {}, policyTypes: [Ingress]}}")
	expect("a policy", a, b+":8080", 1, ns+"/deny")
	c.kubectl(t, "-n", ns, "delete", "networkpolicy", "deny")
	expect("without faults", a, b+":8080", 0, "")
	c.explainFromBundles(t, program, ns, a, far)
}

// onNode: commands about a node run on it with --node or $WEFT_NODE, with their output and exit code.
func (c Cluster) onNode(t *testing.T, program string) {
	t.Helper()
	for _, q := range []struct {
		command string
		ok      bool
		want    string
	}{
		{"mesh --node node2 -o jsonpath={.self}", true, "node2"},
		{"mesh ping --node node1", true, "0 failed"},
		{"mesh ping --node node1 nosuch", false, "nosuch"},
		{"doctor --node node2", true, "it answers"},
		{"policy show --node node2", true, "node node2: "},
		{"status --node node2", true, "1 of 1 answer"},
		{"mesh --node node3", false, "did you mean node"},
		{"mesh --node node2 --watch", false, "kubectl exec -it"},
	} {
		out, err := c.try("exec", append([]string{"control", program}, strings.Fields(q.command)...)...)
		if (err == nil) != q.ok || !strings.Contains(out+fmt.Sprint(err), q.want) {
			t.Errorf("weft %s: %s%v", q.command, out, err)
		}
	}
	out, err := c.try("exec", "control", "env", "WEFT_NODE=node2", program, "mesh", "-o", "jsonpath={.self}")
	if err != nil || strings.TrimSpace(out) != "node2" {
		t.Errorf("WEFT_NODE: %s%v", out, err)
	}
}

// explainFromBundles explains from the support bundles of all nodes what needs objects of Kubernetes: a Service, the name
// of its port, and a pod in its node's network. Nothing of a pod that may be secret is in the bundles.
func (c Cluster) explainFromBundles(t *testing.T, program, ns, client, far string) {
	t.Helper()
	const secret = "hunter2"
	c.apply(t, ns, fmt.Sprintf("{apiVersion: v1, kind: Pod, metadata: {name: onnode}, spec: {nodeName: %s, hostNetwork: true, "+
		"containers: [{name: c, image: %s, command: [sleep, infinity], env: [{name: PASSWORD, value: %s}]}]}}",
		far, agnhost, secret))
	const dir = "/tmp/weft-bundles"
	defer c.must(t, "exec", "control", "rm", "-rf", dir)
	collect := fmt.Sprintf(`rm -rf %[1]s && %[2]s support-bundle --kubeconfig "$KUBECONFIG" -o %[1]s `+
		`--explain %[3]s,%[4]s/web:80 --explain %[3]s,%[4]s/onnode`, dir, program, client, ns)
	eventually(t, 60*time.Second, func() error { // until the pod is there
		out, err := c.try("exec", "control", "sh", "-c", collect)
		if err == nil && strings.Count(out, ".tar.gz") < 2 {
			return fmt.Errorf("bundles: %s", out)
		}
		return err
	})
	for _, to := range []string{ns + "/web:80", ns + "/onnode"} {
		if out, err := c.try("exec", "control", program, "explain", "--from", dir, client, to); err != nil {
			t.Errorf("%s to %s from bundles: %s%v", client, to, out, err)
		}
	}
	if out, err := c.try("exec", "control", "sh", "-c", "zcat -f "+dir+"/* | grep -c "+secret); err == nil {
		t.Errorf("bundles have a pod's environment: %s", out)
	}
}
